"""The report of an evaluation and of two side by side: complete, harmless, and usable in a browser."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from bench import report
from tests.eval.report.pages import HOSTILE, assert_sound
from tests.eval.sample_evaluation import SKILL, sample_evaluation, sample_part
from uni_train.eval.benchmark import Table
from uni_train.eval.compare import Comparison, compare
from uni_train.eval.report import gallery
from uni_train.eval.report.evaluation import charts, parts_of, sections_of, write_comparison
from uni_train.eval.report.gallery import build
from uni_train.eval.report.page import Page, about, write_page
from uni_train.eval.report.run import write_report
from uni_train.eval.report.samples import Part, link, outcomes_of


@pytest.fixture(scope="module")
def part() -> Part:
    """160 samples."""
    return sample_part(40)


def write(path: Path, part: Part, text: str = "sums") -> Path:
    """text: stands wherever a page shows one."""
    sections = [*sections_of([part]), about(text, text, [text], json.dumps({text: 1}), text)]
    return write_page(path, Page(title=text, lead=text, facts=[(text, text)], notes=[text], sections=sections))


def hostile(part: Part) -> Part:
    """Every text that a model, a judge or a file of someone else's can bring is markup."""
    first, *others = part.moments[""]
    case = replace(first.sample.ask.case, prompt=HOSTILE, category=HOSTILE, facts={HOSTILE: HOSTILE})
    told: dict[str, Any] = {"prompt": HOSTILE + "refined", "thought": HOSTILE, "note": HOSTILE}
    parts = (HOSTILE, *first.sample.parts)
    sample = replace(first.sample, ask=replace(first.sample.ask, case=case), parts=parts, **told)
    spoilt = replace(first, sample=sample, by=HOSTILE, replies=(HOSTILE,), cause=HOSTILE, verdict=first.verdict)
    table = Table(HOSTILE, (HOSTILE, "n"), ((HOSTILE, HOSTILE),), HOSTILE)
    return replace(part, moments={"": [spoilt, *others]}, tables=[*part.tables, table])


def cards_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'id="cards">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])["cards"]  # type: ignore[no-any-return]


def test_the_page_holds_everything_and_asks_for_nothing(part: Part, tmp_path: Path) -> None:
    page = write(tmp_path / "report.html", part).read_text(encoding="utf-8")
    assert_sound(page)
    for by_set in map(part.scores.__getitem__, part.settings):
        assert all(f"{estimate['value']:.2f}" in page for estimate in by_set.values())
    cards = cards_of(page)
    assert [(card["id"], card["setting"]) for card in cards] == [
        (one.sample.ask.case.id, one.sample.ask.setting) for one in part.moments[""]
    ]
    drawn = [one for one in part.moments[""] if one.sample.image is not None]
    assert ["image" in card["answers"][""] for card in cards].count(True) == len(drawn) < len(cards)


def test_counts_are_those_of_the_samples_and_lead_to_them(part: Part) -> None:
    shown = outcomes_of(part).shown
    wrong = [one for one in part.moments[""] if one.outcome != "pass"]
    assert sum(row["total"][0] for row in shown["causes"]) == len(wrong)
    assert sum(count for row in shown["outcomes"] for _, count, _ in row["cells"]) == len(part.moments[""])
    assert link("sums", setting="cot", cause="drawn wrong & more") == (
        "#gallery?benchmark=sums&setting=cot&cause=drawn+wrong+%26+more"
    )
    by_set, *by_category = charts(part)
    assert [name for _, name in by_set.rows] == ["math1", "math2"] and len(by_category) == 2


def test_a_setting_has_one_colour_whatever_else_was_asked(part: Part) -> None:
    drawn = [charts(part)[0]]
    for left_out in part.settings:
        some = [one for one in part.moments[""] if one.sample.ask.setting != left_out]
        drawn.append(charts(replace(part, moments={"": some}))[0])
    colours = [{name: colour for colour, name in one.legend} for one in drawn]
    assert len(colours[0]) == len(part.settings) > 1
    assert all(colours[0][name] == one[name] for one in colours for name in one)


def test_text_from_outside_stays_text(part: Part, tmp_path: Path) -> None:
    page = write(tmp_path / "report.html", hostile(part), HOSTILE).read_text(encoding="utf-8")
    assert_sound(page)
    assert page.count("<script") == page.count('id="pictures-') + 2  # the cards and the one script


def test_a_full_page_leaves_out_pictures_of_whole_cases(part: Part) -> None:
    large = [
        replace(one, sample=replace(one.sample, parts=(report.noise(i, 96),) if one.sample.image else ()))
        for i, one in enumerate(part.moments[""])
    ]
    found = gallery.build({"sums": {"": large}}, budget=1_000_000)
    cards = found.cards
    assert len(cards) == found.total == len(part.moments[""])
    bytes_shown = sum(len(picture) for block in found.blocks for picture in block)
    assert 500_000 < bytes_shown < 1_300_000
    left_out = {card["id"] for card in cards if "left_out" in card["answers"][""]}
    assert left_out and not left_out & {card["id"] for card in cards if "image" in card["answers"][""]}

    kind, data = gallery.thumbnail(report.noise(0, 600))
    with Image.open(io.BytesIO(data)) as small:
        assert (kind, small.size) == ("webp", (192, 192))

    found = gallery.build({"sums": part.moments}, cards=41)
    assert len(found.cards) == 40 and found.total == 160
    assert all(sum(card["id"] == other["id"] for other in found.cards) == 2 for card in found.cards)  # both settings


@pytest.mark.slow
def test_a_person_can_filter_and_follow_a_count_to_its_samples(part: Part, tab: Any, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    page = write(tmp_path / "report.html", hostile(part))
    tab.goto(page.as_uri())
    assert tab.title() == "sums"
    assert tab.locator("#count").inner_text() == "160 samples"
    assert tab.locator("#list > li").count() == 24

    tab.select_option("select[name=setting]", "cot")
    tab.select_option("select[name=set]", "math2")
    tab.select_option("select[name=verdict]", "fail")
    kinds = [(one.sample.ask.setting, one.sample.ask.case.set, one.outcome) for one in part.moments[""]]
    expected = kinds.count(("cot", "math2", "fail"))
    assert tab.locator("#count").inner_text() == f"{expected} of 160 samples"
    assert tab.locator("#list .verdict").all_inner_texts()[:expected] == ["✗ wrong"] * min(24, expected)

    tab.click("button[type=reset]")
    counted = sync_api.expect(tab.locator("#count"))  # waits from outside: the page's policy forbids scripts of others
    counted.to_have_text("160 samples")
    link = tab.locator("table.attribution tr", has_text="drawn wrong").locator("a").first
    count = int(link.inner_text())
    link.click()
    counted.to_have_text(f"{count} of 160 samples")
    assert tab.input_value("select[name=cause]") == "drawn wrong"
    assert tab.evaluate("document.querySelector('#list img').naturalWidth") == 24

    card = tab.locator("#list > li").first
    card.locator("button", has_text="all answers").click()
    assert tab.locator("#count").inner_text() == "2 of 160 samples"
    tab.go_back()
    counted.to_have_text(f"{count} of 160 samples")
    tab.click("button[type=reset]")
    tab.locator("button[data-step='1']").first.click()
    assert tab.locator(".pages span").first.inner_text() == "page 2 of 7"
    tab.fill("input[name=search]", "onerror=alert(1)")
    assert tab.locator("#count").inner_text() == "1 of 160 samples"
    tab.locator("#list details summary").last.click()
    assert HOSTILE in tab.locator("#list").inner_text()
    assert tab.title() == "sums"


@pytest.mark.slow
@pytest.mark.parametrize("width", (1280, 420))
def test_a_runs_tables_fit_and_legends_keep_their_colours(width: int, run_dir: Path, tab: Any) -> None:
    """1280 pixels hold every table, also where questions repeat; on a phone tables scroll, and the page does not."""
    summary = json.loads((run_dir / "summary.json").read_text())
    for one in summary["rounds"]:
        one |= {name: one[name] | {"distinct": 1024} for name in one if name.endswith("_estimate") and one[name]}
    (run_dir / "summary.json").write_text(json.dumps(summary))
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(write_report(run_dir).as_uri())
    assert "(1024 distinct)" in tab.locator("#scores").inner_text()
    sizes = "all => all.map(one => [one.scrollWidth, one.clientWidth])"
    for where in ("html", *((".scroll",) if width > 1000 else ())):
        assert all(needed <= there for needed, there in tab.locator(where).evaluate_all(sizes))
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth && getComputedStyle(one).overflowX === 'auto')"
    cut += ".map(one => getComputedStyle(one).backgroundAttachment)"
    cues = tab.locator("*").evaluate_all(cut)
    assert (width > 1000 or cues) and all("local" in one for one in cues)  # a shadow at the side where more is
    pieces = tab.locator(".key").evaluate_all("all => all.map(one => one.getClientRects().length)")
    assert pieces and set(pieces) == {1}


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
