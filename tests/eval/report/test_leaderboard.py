"""The leaderboard's files: the page in a browser, CSV, LaTeX."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eval.report.pages import assert_sound
from tests.eval.sample_evaluation import SKILL, sample_evaluation
from uni_train.eval.benchmark import Table
from uni_train.eval.leaderboard import Column, Complexity, Leaderboard, leaderboard
from uni_train.eval.report.leaderboard import SCORES, page_of, write_leaderboard
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
