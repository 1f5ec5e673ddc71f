"""Evaluations beside each other: scores, marks, complexity, and the papers' tables of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eval.sample_evaluation import SKILL, sample_evaluation
from tests.eval.test_compare import evaluation
from uni_train.errors import UserError
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.compare import compare
from uni_train.eval.leaderboard import Column, leaderboard
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
    (chart, _) = leaderboard([folder]).by_complexity
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
