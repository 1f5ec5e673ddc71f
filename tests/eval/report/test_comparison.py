"""Two evaluations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.eval.report.pages import assert_sound
from tests.eval.sample_evaluation import SKILL, sample_evaluation
from uni_train.eval.compare import Comparison, compare
from uni_train.eval.report.evaluation import parts_of, write_comparison
from uni_train.eval.report.gallery import build


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("evals")
    sample_evaluation(folder / "before", 10)
    sample_evaluation(folder / "after", 10, SKILL | {"normal": 1.0})
    return compare(folder / "before", folder / "after")


def test_flips_come_first_and_nothing_else_differs(compared: Comparison) -> None:
    parts = {part.name: part.moments for part in parts_of(compared)}
    found = build(parts, changed_first=True)
    cards, total = found.cards, found.total
    flipped = [len({answer["outcome"] == "pass" for answer in card["answers"].values()}) == 2 for card in cards]
    assert len(cards) == total == 40 and sum(flipped) == len(compared.flips) > 0
    assert flipped == sorted(flipped, reverse=True)
    assert {card["setting"] for card, flip in zip(cards, flipped, strict=True) if flip} == {"normal"}
    fewer = build(parts, sum(flipped) + 1, changed_first=True)
    assert len(fewer.cards) == sum(flipped) + 1 and fewer.total == 40
    assert [card["id"] for card in fewer.cards[: sum(flipped)]] == [card["id"] for card in cards[: sum(flipped)]]


@pytest.mark.slow
def test_a_browser_shows_both_answers(compared: Comparison, tab: Any, tmp_path: Path) -> None:
    page = write_comparison(tmp_path / "flips.html", compared)
    assert_sound(page.read_text(encoding="utf-8"))
    tab.goto(page.as_uri())
    assert tab.locator("#count").inner_text() == "40 samples"
    tab.select_option("select[name=change]", "won")
    assert tab.locator("#count").inner_text() == f"{len(compared.flips)} of 40 samples"
    assert tab.locator("#list > li").first.locator("img").count() == 2
    assert tab.locator("#list figcaption").all_inner_texts()[:2] == ["before", "after"]
