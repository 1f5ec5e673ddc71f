from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.eval.report.pages import HOSTILE, assert_sound
from uni_train.eval.benchmark import OUTCOMES
from uni_train.eval.report import charts, evaluation, gallery, run
from uni_train.eval.report.run import write_report
from uni_train.eval.scored import read_folder, read_scored, shard_path, write_scored


def test_the_page_holds_everything_and_asks_for_nothing(run_dir: Path) -> None:
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert_sound(page)
    found = json.loads((run_dir / "summary.json").read_text())
    for when in ("before", "after"):
        for by_set in found["scores"][when].values():
            assert all(f"{estimate['value']:.2f}" in page for estimate in by_set.values())
    for part in ("Table 3", "Table 2", "BAGEL + STARS with CL, round 3", "picking one of the two", "Training curves",
                 "trivial", "n / distinct", "clustered by expression", "clustered by rules"):  # fmt: skip
        assert part in page


def test_text_from_outside_stays_text(run_dir: Path) -> None:
    _spoil_first_shard(run_dir)
    for name, old in (("summary.json", '"nano"'), ("run.json", '"fit"')):
        path = run_dir / name
        path.write_text(path.read_text().replace(old, json.dumps(HOSTILE)))
    (run_dir / "config.yaml").write_text(HOSTILE)
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert_sound(page)
    assert page.count("<script") == 2 + page.count('id="pictures-')  # the data and the one script
    assert "&lt;/script&gt;" in page and "\\u003c/script\\u003e" in page and "{{ 7*7 }}" in page


@pytest.mark.slow
def test_a_browser_renders_it_without_complaint(run_dir: Path, tab: Any) -> None:
    _spoil_first_shard(run_dir)
    tab.goto(write_report(run_dir).as_uri())
    assert tab.locator("li.card").count() == 24 and "page 1 of 5" in tab.content()  # 108 samples
    assert tab.title().startswith("stars_curriculum") and "&lt;/script&gt;" in tab.content()
    tab.select_option("select[name=setting]", "cot")
    tab.select_option("select[name=set]", "mapping2")
    assert tab.locator("li.card").count() == 12 and "12 of 108 samples" in tab.content()


def test_a_run_that_left_only_its_summary(run_dir: Path) -> None:
    raw = json.loads((run_dir / "summary.json").read_text())
    contract = ("recipe", "model", "seed", "wall_seconds", "peak_rss_bytes", "scores", "rounds")
    rounds = [{k: v for k, v in entry.items() if not k.endswith("_estimate")} for entry in raw["rounds"]]
    bare = {key: raw[key] for key in contract} | {"rounds": rounds}
    (run_dir / "summary.json").write_text(json.dumps(bare))
    shutil.rmtree(run_dir / "stages")
    (run_dir / "run.json").unlink()
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert "Table 3" in page and 'id="gallery"' not in page

    (run_dir / "summary.json").write_text(json.dumps(bare | {"scores": {"before": {}, "after": {}}, "rounds": []}))
    assert "About this run" in write_report(run_dir).read_text(encoding="utf-8")


def moments(run_dir: Path) -> dict[str, gallery.Read]:
    return {moment: partial(read_folder, folder) for moment, folder in run.evaluations(run_dir).items()}


def pair(card: dict[str, Any]) -> str:
    return card["id"][:-1] if card["set"].startswith("mapping") else ""


def test_a_full_gallery_leaves_out_whole_pairs_fairly(finished_run: Path) -> None:
    parts = {"unisandbox": moments(finished_run)}
    everything = gallery.build(parts)
    assert everything.total == len(everything.cards) == 108
    less = gallery.build(parts, budget=100_000)
    assert len(less.cards) == 108 and 30_000 < sum(len(url) for block in less.blocks for url in block) < 150_000
    fewer = gallery.build(parts, cards=50)
    assert 36 <= len(fewer.cards) <= 50 and fewer.total == 108
    pictured = [card for card in less.cards if not any("left_out" in one for one in card["answers"].values())]
    for some in (fewer.cards, pictured):
        per_set = (
            Counter(card["set"] for card in some if not pair(card)),
            Counter(card["set"] for card in some if pair(card)),
        )
        assert all(max(counts.values()) - min(counts.values()) <= 4 for counts in per_set)  # a pair in both settings
        pairs = [pair(card) for card in some if pair(card) and card["setting"] == "cot"]
        assert pairs and all(pairs.count(pair) == 2 for pair in pairs)
        assert all(list(card["answers"]) == ["before", "after"] for card in some)


def test_a_run_that_was_evaluated_once_shows_that(run_dir: Path) -> None:
    for stage in ("01-evaluate-before", "05-evaluate-round1"):
        shutil.rmtree(run_dir / "stages" / stage)
    after = run_dir / "stages" / "13-evaluate-after"
    assert run.evaluations(run_dir) == {"before": after / "scored"}
    assert not any("after" in card["answers"] for card in gallery.build({"": moments(run_dir)}).cards)


def test_log_axes_hold_their_data() -> None:
    for low, high in ((0.02, 0.31), (1e-5, 40.0), (0.5, 0.5), (1.0, 1.2)):
        axis = charts.log_axis(low, high)
        assert axis.low <= low and axis.high >= high and axis.low < axis.high
        assert all(0 <= axis.share(value) <= 1 for value in (low, high))


@pytest.mark.parametrize("ends", [(0, 100), (0, 100, 101, 102), (0, 1, 2, 100)])
def test_names_over_a_chart_have_their_place_or_are_numbers(ends: tuple[int, ...]) -> None:
    axis = charts.linear_axis(0, 120)
    dividers = [(end, f"mapping{i}") for i, end in enumerate(ends, 1)]
    drawn = charts.chart("Loss", "", [charts.Series("", [(0, 0), (120, 1)])], axis, axis, dividers)
    places = [*(place for place, _ in drawn.dividers), charts.WIDTH]
    assert all(place + 6 * len(name) <= after
               for (place, name), after in zip(drawn.dividers, places[1:], strict=True))  # fmt: skip
    named = drawn.numbers or " ".join(name for _, name in drawn.dividers)
    assert all(name in named for _, name in dividers)


def test_whatever_a_legend_names_has_a_colour() -> None:
    style = (Path(charts.__file__).parent / "style.css").read_text(encoding="utf-8")
    for name in {*OUTCOMES, *evaluation.OUTCOME_NAMES}:
        assert re.search(rf"\.{name}\b[^{{]*{{ --v:", style), name
    axis = charts.linear_axis(0, 1)
    many = [charts.Series(f"reward {i}", [(0, 0), (1, 1)], i) for i in range(1, 15)]
    for line in charts.chart("Rewards", "", many, axis, axis).legend:
        assert f".s{line.colour} {{ --s:" in style


def _spoil_first_shard(run_dir: Path) -> None:
    """The card's prompt comes from the first evaluation, its thought from each."""
    for stage in ("01-evaluate-before", "13-evaluate-after"):
        shard = shard_path(run_dir / "stages" / stage / "scored", 0)
        rows = read_scored(shard)
        place = next(i for i, row in enumerate(rows) if row.sample.ask.case.facts["task"] == "mapping")
        ask = rows[place].sample.ask
        spoilt = replace(ask, case=replace(ask.case, prompt=HOSTILE))
        rows[place] = replace(rows[place], sample=replace(rows[place].sample, ask=spoilt, thought=HOSTILE))
        write_scored(shard, rows)
