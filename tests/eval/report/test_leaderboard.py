"""The leaderboard's files: the page in a browser, CSV, LaTeX."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eval.benchmarks.published import opened, row, write
from tests.eval.report.pages import assert_sound
from tests.eval.sample_evaluation import SKILL, sample_evaluation
from tests.eval.test_compare import evaluation
from uni_train.eval.benchmark import Source, Table
from uni_train.eval.benchmarks.ueval.cases import TASKS
from uni_train.eval.leaderboard import Column, Complexity, Leaderboard, leaderboard
from uni_train.eval.report.leaderboard import SCORES, page_of, write_leaderboard
from uni_train.eval.report.radar import CENTRE, RADIUS, radar
from uni_train.eval.report.tables import table_csv, table_latex
from uni_train.eval.statistics import Estimate

HOSTILE = "</script><script>alert(1)</script>"  # a name, which holds no "="


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    folder = tmp_path_factory.mktemp("evals")
    sample_evaluation(folder / "weak", 12)
    sample_evaluation(folder / "strong", 12, SKILL | {"normal": 1.0})
    sample_evaluation(folder / "hostile", 12, SKILL | {"cot": 0.0})
    return leaderboard([f"weak={folder / 'weak'}", f"strong={folder / 'strong'}", f"{HOSTILE}={folder / 'hostile'}"])


def test_the_page_is_one_file_and_names_stay_text(board: Leaderboard, tmp_path: Path) -> None:
    page = write_leaderboard(tmp_path, board).read_text(encoding="utf-8")
    assert_sound(page)
    assert page.count("<script") == 1 and "&lt;/script&gt;" in page and "src=" not in page
    rows = re.findall(r"<tr>.*?</tr>", re.search(r'id="board".*?</table>', page, re.DOTALL)[0], re.DOTALL)  # type: ignore[index]
    assert {len(re.findall(r"<t[dh][ >]", row)) for row in rows[1:]} == {1 + len(board.columns)}
    for cell in board.cells.values():
        assert f"{cell.estimate.value:.2f}" in page
    with open(tmp_path / SCORES, encoding="utf-8") as file:
        listed = list(csv.DictReader(file))
    assert len(listed) == 6 and {row["against_best"] for row in listed} == {"best", "equal", "below"}
    tables = [path.name for path in sorted((tmp_path / "tables").iterdir())]
    assert len(tables) == 2 * len(board.tables["unisandbox"])
    assert [name.partition("-reasoning")[0] + Path(name).suffix for name in tables[:2]] == [
        "unisandbox-1.csv", "unisandbox-1.tex",
    ]  # fmt: skip


def test_benchmarks_stand_above_their_own_columns(board: Leaderboard) -> None:
    """Tables come in the order of the evaluations, columns in that of the registry."""
    columns = tuple(Column(*names) for names in (("ueval", "a"), ("ureason", "b"), ("ureason", "c")))
    page = page_of(replace(board, columns=columns, cells={}, tables={"ureason": (), "ueval": ()}))
    assert page.sections[0].shown["groups"] == [("ueval", 1), ("ureason", 2)]


def test_a_model_has_one_colour_in_all_charts(board: Leaderboard) -> None:
    """Also where another one was not asked what a chart shows."""
    first, *others = board.evaluations
    whole = {name: {1.0: Estimate(0.5, 9, 0.3, 0.7), 2.0: Estimate(0.4, 9, 0.2, 0.6)} for name in board.evaluations}
    column = board.columns[0]
    some = [Complexity(column, title, {name: whole[name] for name in names})
            for title, names in (("a", [first, *others]), ("b", others), ("c", others[::-1]))]  # fmt: skip
    drawn = [
        {line.name: line.colour for line in one.lines}
        for one in page_of(replace(board, by_complexity=some)).sections[1].charts
    ]
    assert [len(one) for one in drawn] == [3, 2, 2]
    assert all(one[name] == drawn[0][name] for one in drawn for name in one)


def test_a_radar_has_a_vertex_for_each_task_at_its_score() -> None:
    """The first task at the top, the others clockwise; a polygon stays open where a task has no score."""
    sets = [f"task{number}" for number in range(8)]
    shares = {name: 0.1 * (number + 1) for number, name in enumerate(sets)}
    whole = {name: Estimate(share, 9, 0.0, 1.0) for name, share in shares.items()}
    drawn = radar("ueval", {"a": whole, "b": {**whole, sets[0]: None}})
    a, b = drawn.lines
    x, y = CENTRE
    for place, (name, (to_x, to_y, tip)) in enumerate(zip(sets, a.dots, strict=True)):
        assert math.hypot(to_x - x, to_y - y) == pytest.approx(RADIUS * shares[name], abs=0.1)
        assert math.atan2(to_x - x, y - to_y) % math.tau == pytest.approx(place * math.tau / 8, abs=0.02)
        assert tip == f"a, {name}: {shares[name]:.2f}" and f"{name} {shares[name]:.2f}" in drawn.description
        assert f"L{to_x} {to_y}" in a.path
    assert a.path.count("M") == 8 and b.path.count("M") == 6 and b.dots == a_named(a.dots[1:], "b")
    assert [label for *_, label in drawn.rings] == ["0.25", "0.50", "0.75", "1.00"]
    assert [anchor for *_, anchor, _ in drawn.spokes] == ["middle", *["start"] * 3, "middle", *["end"] * 3]


def test_models_are_compared_over_the_tasks_of_ueval_as_figure_6_does(board: Leaderboard, tmp_path: Path) -> None:
    """Which other benchmarks have no radar, whatever their sets."""
    rows = [row("ueval", id=number, task=task) for number, task in enumerate(TASKS)]
    ueval = opened("ueval", Source(data=write(tmp_path, "ueval", *rows)))
    folders = [evaluation(tmp_path / name, [ueval], lambda ask, wrong=wrong: ask.case.set != wrong, check="image 1")  # type: ignore[misc]
               for name, wrong in (("one", "space"), ("two", "art"))]  # fmt: skip
    compared = leaderboard(folders)
    section = next(one for one in page_of(compared).sections if one.title == "By set")
    assert [chart.title for chart in section.charts] == ["ueval, two_passes, by set", "ueval, think_first, by set"]
    scores = [
        {tip.split(": ")[0].split(", ")[1]: tip[-4:] for *_, tip in line.dots} for line in section.charts[0].lines
    ]
    assert [list(one) for one in scores] == [list(TASKS)] * 2  # clockwise in the paper's order
    assert [(one["space"], one["art"]) for one in scores] == [("0.00", "0.50"), ("0.50", "0.00")]
    assert_sound(write_leaderboard(tmp_path / "board", compared).read_text(encoding="utf-8"))
    assert "By set" not in [one.title for one in page_of(board).sections if not one.empty]


def a_named(dots: Sequence[tuple[float, float, str]], name: str) -> list[tuple[float, float, str]]:
    return [(x, y, tip.replace("a,", f"{name},")) for x, y, tip in dots]


def test_tables_as_csv_and_latex() -> None:
    high, low = Estimate(0.75, 20, 0.5, 0.9), Estimate(0.5, 20, 0.3, 0.7)
    rows = (("a_b", "direct", high), ("c", "direct", low), ("the paper", "Bagel & co, 5 %", "0.61"))
    table = Table("Table 2", ("Model", "Setting", "Code"), rows, "A note.")
    assert table_csv(table).splitlines() == [
        "Model,Setting,Code,Code low,Code high", "a_b,direct,0.75,0.5,0.9", "c,direct,0.5,0.3,0.7",
        'the paper,"Bagel & co, 5 %",0.61,,',
    ]  # fmt: skip
    latex = table_latex(table)
    assert (
        r"\begin{tabular}{llr}" in latex and r"a\_b & direct & \textbf{$0.75$} {\scriptsize [0.50, 0.90]} \\" in latex
    )
    assert r"c & direct & $0.50$ {\scriptsize [0.30, 0.70]} \\" in latex and r"Bagel \& co, 5 \%" in latex


@pytest.mark.slow
def test_a_browser_sorts_it(board: Leaderboard, tab: Any, tmp_path: Path) -> None:
    tab.goto(write_leaderboard(tmp_path, board).as_uri())

    def first() -> str:
        return tab.locator("#board tbody tr").first.locator("th").inner_text()  # type: ignore[no-any-return]

    tab.locator("#board thead button", has_text="normal").click()
    assert first() == "strong"
    tab.locator("#board thead button", has_text="cot").click()
    tab.locator("#board thead button", has_text="cot").click()
    assert first() == HOSTILE and tab.title() == "Leaderboard"
