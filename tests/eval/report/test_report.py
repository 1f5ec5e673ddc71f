from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eval.report.pages import HOSTILE, assert_sound
from uni_train.eval import model_card
from uni_train.eval.benchmark import OUTCOMES
from uni_train.eval.report import charts, gallery, page, run, samples, tables
from uni_train.eval.report.run import write_report
from uni_train.eval.row_losses import Difference
from uni_train.eval.scored import read_folder, read_scored, shard_path, write_scored
from uni_train.eval.statistics import Estimate, proportion
from uni_train.stages import validation


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


def moments(run_dir: Path) -> gallery.Moments:
    return {moment: list(read_folder(folder)) for moment, folder in run.evaluations(run_dir).items()}


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


@pytest.mark.parametrize(
    "axis",
    [charts.linear_axis(0, 2e-5), charts.linear_axis(-1.5e-05, 0), charts.linear_axis(0, 1_200_000),
     charts.log_axis(1e-9, 3e-7), charts.SHARES],
)  # fmt: skip
def test_the_numbers_beside_a_chart_have_their_room(axis: charts.Axis) -> None:
    drawn = charts.chart(
        "Rate", "", [charts.Series("", [(0, axis.low), (1, axis.high)])], charts.linear_axis(0, 1), axis
    )
    assert all(6.5 * len(label) <= drawn.left - 6 for _, label in drawn.y_ticks)
    assert drawn.x_ticks[0][0] == drawn.left and drawn.lines[0].path.startswith(f"M{drawn.left}")


@pytest.mark.parametrize("name", ["jigsaw", "chemistry, experiments", "counting " * 12])
def test_the_names_beside_dots_have_their_room(name: str) -> None:
    drawn = charts.dots("By category", {name: {"normal": proportion(3, 10)}}, {"normal": 1})
    assert all(6.5 * len(shown) <= drawn.left - 8 < charts.WIDTH / 2 for _, shown in drawn.rows)
    assert drawn.x_ticks[0][0] == drawn.left and drawn.marks[0].tip.startswith(name)


def test_a_tip_has_the_digits_of_its_axis() -> None:
    axis, line = charts.linear_axis(0, 1), charts.Series("kl", [(0.0, 1.5e-05)], markers=True)
    tips = [charts.chart("", "", [line], axis, y).lines[0].dots[0][2] for y in (axis, charts.SHARES)]
    assert tips == ["kl: 1.5e-05", "kl: 0.00"]


@pytest.mark.parametrize(
    "said",
    [
        str, page._interval, page._score, lambda one: tables._console_cell(one, 2),
        lambda one: tables._latex_cell(one, False),
        lambda one: tables.table_csv(tables.Table("", ("a", "b"), (("x", str(one)),))),
        lambda one: validation.table({"before": {"x": one.to_dict()}})[1][0][1],
        lambda one: model_card._cell(one.to_dict()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ends", [(-0.004, 0.2), (-0.3, -0.001), (-0.002, 0.003), (-1e-18, 0.5), (-0.0, 0.5)])
def test_what_rounds_to_nothing_has_no_sign(said: Callable[[Estimate], str], ends: tuple[float, float]) -> None:
    assert not re.search(r"[-−]0?\.(00)?(?!\d)", said(Estimate(sum(ends) / 2, 20, *ends)))


def test_a_difference_has_its_sign_wherever_its_interval_lies() -> None:
    gap = Difference(0.5104, 9, 0.105, 0.9135)
    table = tables.Table("", ("", "Gap"), (("text", gap),), digits=3)
    assert tables._console_cell(gap, 3) == "+0.510\n+.105 to +.913"
    html = page.environment().get_template("table.html").module.table(tables.shown_table(table))  # type: ignore[attr-defined]
    assert "<td>+0.510<" in html and "+0.105 to +0.913, n = 9" in html


METRICS = {"loss": 0.5, "mse": 0.5, "ce": 0.0, "lr": 1.5e-05}


@pytest.mark.parametrize(
    ("config", "result", "facts"),
    [
        (
            {"sources": {"a": {"path": "a.jsonl"}, "b": {"path": ["b", "c", "d"]}, "off": None}},
            {"updates": 1500, "rows": {"a": 1200, "b": 34}},
            {"Data": "a.jsonl, b, c and 1 more", "Rows": "1,234", "Updates": "1,500", "Checkpoint": "weights/BAGEL"},
        ),
        ({"prompts": {"path": "prompts.txt", "task": None}}, {"updates": 3}, {"Data": "prompts.txt", "Updates": "3"}),
        ({"prompts": {"path": None, "task": "maze"}}, {"updates": 3}, {"Updates": "3"}),
        ({"model": {"name": "nano", "checkpoint": None}}, {}, {"Checkpoint": "none: random weights"}),
        ({"sources": "a.jsonl", "model": {"name": "nano"}}, {"rows": 3}, {}),
    ],
)
def test_a_report_names_what_was_trained_on_what(
    config: dict[str, Any], result: dict[str, Any], facts: dict[str, str], tmp_path: Path
) -> None:
    stage = tmp_path / "stages" / "00-sft"
    (stage / "model").mkdir(parents=True)
    head = {"recipe": "sft", "seed": 0, "model": {"name": "bagel_7b", "checkpoint": "weights/BAGEL"}}
    (tmp_path / "config.yaml").write_text(json.dumps(head | config))
    (stage / "manifest.json").write_text(json.dumps({"stage": "sft", "seconds": 9.0, "result": result}))
    (stage / "metrics.jsonl").write_text("".join(json.dumps({"step": i, **METRICS}) + "\n" for i in range(3)))
    again = {"stage": "sft-from-3", "result": {"rows": result.get("rows")}}
    (tmp_path / "stages" / "01-sft-from-3").mkdir()
    (tmp_path / "stages" / "01-sft-from-3" / "manifest.json").write_text(json.dumps(again))
    page = write_report(tmp_path).read_text(encoding="utf-8")
    said = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", page))
    assert said.pop("Trained model") == "stages/00-sft/model"
    assert facts.items() <= said.items()
    assert {"Data", "Rows", "Updates"} & said.keys() == {"Data", "Rows", "Updates"} & facts.keys()
    assert "Image part (MSE)" in page and "Text part" not in page  # no text was learned


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
    for name in {*OUTCOMES, *samples.OUTCOME_NAMES}:
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
