"""Evaluations beside each other: scores, marks, complexity, and the papers' tables of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.eval.sample_evaluation import SKILL, sample_evaluation
from tests.eval.test_compare import evaluation
from uni_train.errors import UserError
from uni_train.eval.benchmark import Benchmark, Source
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.ufo import Ufo
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.ureason import UReason
from uni_train.eval.benchmarks.vigor import Vigor, programs
from uni_train.eval.benchmarks.vigor.files import write_folder
from uni_train.eval.benchmarks.vigor.templates import REASONING
from uni_train.eval.compare import compare
from uni_train.eval.leaderboard import Column, leaderboard
from uni_train.eval.report.leaderboard import context
from uni_train.eval.results import PAPER
from uni_train.eval.statistics import Estimate


def test_scores_are_paired_with_the_best_of_their_column(tmp_path: Path) -> None:
    sample_evaluation(tmp_path / "weak", 20)
    sample_evaluation(tmp_path / "strong", 20, SKILL | {"normal": 1.0})
    board = leaderboard([f"weak={tmp_path / 'weak'}", f"strong={tmp_path / 'strong'}"])
    normal, cot = Column("sums", "normal"), Column("sums", "cot")
    assert board.columns == (normal, cot)
    assert [board.cells[name, normal].mark for name in board.evaluations] == ["below", "best"]
    gap = board.cells["weak", normal].best
    rows = [row for row in compare(tmp_path / "strong", tmp_path / "weak").rows if row.setting == "normal"]
    assert gap is not None and gap.difference.value == pytest.approx(
        sum(r.comparison.difference.value for r in rows) / 2
    )
    assert gap.only_second == sum(row.comparison.only_second for row in rows) and gap.difference.high < 0
    # With a thought both are the same model: the same score, and no difference to be seen.
    assert [board.cells[name, cot].mark for name in board.evaluations] == ["best", "equal"]
    by_set = board.evaluations["weak"].results["sums"].scores["normal"].values()
    assert board.cells["weak", normal].estimate.value == pytest.approx(sum(one["value"] for one in by_set) / 2)
    assert {(row["model"], row["setting"], row["against_best"]) for row in board.rows()} >= {
        ("weak", "normal", "below")
    }


def test_the_papers_tables_hold_all_models_and_the_paper_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        sample_evaluation(tmp_path / name, 6)
    board = leaderboard([f"a={tmp_path / 'one'}", f"b={tmp_path / 'two'}"])
    (table,) = board.tables["sums"]
    assert table.columns == ("Model", "setting", "math1", "math2")
    assert [row[:2] for row in table.rows] == [(name, s) for name in "ab" for s in ("normal", "cot", "gain")]


def test_levels_are_charted_by_pairs(tmp_path: Path) -> None:
    benchmark = UniSandbox(n=4, sets=("math1", "math2", "mapping1"))
    folder = evaluation(tmp_path / "one", [benchmark], lambda ask: ask.case.set == "math1", started="")
    board = leaderboard([folder])
    titles = [one.title for one in context(board)["charts"]]
    assert titles == [f"unisandbox, {setting}, by level of maths" for setting in ("normal", "cot")]
    (chart, _) = board.by_complexity
    assert chart.title == "level of maths" and list(chart.lines) == ["one"]
    points = {x: (one.value, one.n) for x, one in chart.lines["one"].items()}
    assert points == {1.0: (1.0, 4), 2.0: (0.0, 4)}


def test_other_questions_are_shown_and_not_paired(tmp_path: Path) -> None:
    asked = [UniSandbox(n=n, sets=("math1",)) for n in (3, 4)]
    folders = [evaluation(tmp_path / str(i), [one], lambda ask: True, started="") for i, one in enumerate(asked)]
    board = leaderboard([f"{name}={folder}" for name, folder in zip("ab", folders, strict=True)])
    assert {cell.mark for cell in board.cells.values()} == {"best", ""}
    assert any("not all were asked the same" in note for note in board.notes)
    assert all(isinstance(cell.estimate, Estimate) and cell.best is None for cell in board.cells.values())


def test_the_store_beside_evaluations_is_none(tmp_path: Path) -> None:
    """A shell's evals/*/ names all three."""
    for name in ("one", "two"):
        sample_evaluation(tmp_path / name, 3)
    (tmp_path / "store").mkdir()
    assert list(leaderboard(sorted(tmp_path.iterdir())).evaluations) == ["one", "two"]
    with pytest.raises(UserError, match="store is no evaluation"):
        leaderboard([tmp_path / "store"])


def test_what_cannot_be_told_apart_is_refused(tmp_path: Path) -> None:
    sample_evaluation(tmp_path / "one", 3)
    sample_evaluation(tmp_path / "two", 3)
    for folders, said in (
        ([tmp_path / "one", tmp_path / "one"], "given twice"),
        ([f"a={tmp_path / 'one'}", f"a={tmp_path / 'two'}"], "two evaluations are called a"),
        ([tmp_path / "none"], "is no evaluation"),
    ):
        with pytest.raises(UserError, match=said):
            leaderboard(folders)  # type: ignore[arg-type]


def vigor(folder: Path) -> Vigor:
    """Sets of different sizes: three mazes and an equation."""
    records = [*programs.own_records("everyday", 3, "test", 0, ("maze_navigation",))]
    records += programs.own_records("nano", 1, "test", 0, ("algebraic_calculation",))
    write_folder(folder, [(record, None) for record in records])
    return Vigor(Source(data=folder))


def everything(folder: Path) -> list[tuple[Benchmark, str]]:
    """All five, each with a check that makes a sample right."""
    return [
        (UniSandbox(n=2, characters=2, sets=("math1", "mapping1", "forward", "inverse")), "object"),
        (UReason(n=2), "object"), (UEval(n=2), "image 1"), (Ufo(n=3), "answer"), (vigor(folder), REASONING),
    ]  # fmt: skip


Headline = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("name", "setting", "part", "headline"),
    [
        ("unisandbox", "cot", "", lambda scores: scores["average"]["official"]["cot"]),
        ("unisandbox", "cot", "knowledge", lambda scores: scores["knowledge"]["official"]["cot"]),
        ("ureason", "direct", "", lambda scores: scores["direct"]["overall"]),
        ("ueval", "two_passes", "", lambda scores: scores["two_passes"]["overall"]),
        ("ufo", "visual", "multiple choice", lambda scores: scores["averages"]["mcq"]["visual"]["per question"]),
        ("ufo", "visual", "open questions", lambda scores: scores["averages"]["open"]["visual"]["per question"]),
        ("vigor", "direct", "", lambda scores: scores["direct"]["overall"]),
    ],
)
def test_a_column_is_the_headline_of_its_papers_table(
    tmp_path: Path, name: str, setting: str, part: str, headline: Headline
) -> None:
    ((benchmark, check),) = [pair for pair in everything(tmp_path / "vigor") if pair[0].name == name]
    asked = sorted({case.set.removesuffix("_open") for case in benchmark.cases()})
    right = lambda ask: ask.case.set.removesuffix("_open") in asked[::2]  # noqa: E731
    folder = evaluation(tmp_path / "one", [benchmark], right, check=check, started="")
    board = leaderboard([folder])
    scores = board.evaluations["one"].results[name].scores
    found = board.cells["one", Column(name, setting, part=part)].estimate
    assert 0 < (found.value or 0) < 1
    assert (found.value, found.low) == tuple(pytest.approx(headline(scores)[key]) for key in ("value", "low"))
    assert {column.part for column in board.columns} == set(type(benchmark).headlines)


@pytest.mark.parametrize("at", range(5))
def test_what_a_paper_prints_is_never_a_models(tmp_path: Path, at: int) -> None:
    benchmark, check = everything(tmp_path / "vigor")[at]
    benchmark.published = True
    folder = evaluation(tmp_path / "mine", [benchmark], lambda ask: True, check=check, started="")
    tables = leaderboard([folder]).tables[benchmark.name]
    theirs = [row for table in tables for row in table.rows if "in the paper" in str(row[1])]
    assert theirs and {row[0] for row in theirs} == {PAPER}
    mine = [row for table in tables for row in table.rows if row[0] == "mine"]
    assert mine and not any("paper" in str(row[1]) for row in mine)
