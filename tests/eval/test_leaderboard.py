"""Evaluations beside each other: scores, marks, complexity, and the papers' tables of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eval.benchmarks.published import opened, write_vigor
from tests.eval.sample_evaluation import SKILL, sample_evaluation
from tests.eval.test_compare import evaluation
from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.vigor.cases import generated
from uni_train.eval.benchmarks.vigor.prompts import REASONING
from uni_train.eval.compare import compare
from uni_train.eval.leaderboard import Column, leaderboard
from uni_train.eval.report.leaderboard import page_of
from uni_train.eval.results import PAPER
from uni_train.eval.statistics import Estimate


def test_scores_are_paired_with_the_best_of_their_column(tmp_path: Path) -> None:
    sample_evaluation(tmp_path / "weak", 20)
    sample_evaluation(tmp_path / "strong", 20, SKILL | {"normal": 1.0})
    board = leaderboard([f"weak={tmp_path / 'weak'}", f"strong={tmp_path / 'strong'}"])
    normal, cot = Column("unisandbox", "normal"), Column("unisandbox", "cot")
    assert board.columns == (normal, cot)
    assert [board.cells[name, normal].mark for name in board.evaluations] == ["below", "best"]
    gap = board.cells["weak", normal].best
    rows = [row for row in compare(tmp_path / "strong", tmp_path / "weak").rows if row.setting == "normal"]
    differences = [row.comparison.difference.value for row in rows]
    assert gap is not None and gap.difference.value == pytest.approx(sum(differences) / 2)
    assert gap.only_second == sum(row.comparison.only_second for row in rows) and gap.difference.high < 0
    # With a thought both are the same model: the same score, and no difference to be seen.
    assert [board.cells[name, cot].mark for name in board.evaluations] == ["best", "equal"]
    by_set = board.evaluations["weak"].results["unisandbox"].scores["normal"].values()
    assert board.cells["weak", normal].estimate.value == pytest.approx(sum(one["value"] for one in by_set) / 2)
    assert ("weak", "normal", "below") in {(row["model"], row["setting"], row["against_best"]) for row in board.rows()}
    table, *_ = board.tables["unisandbox"]  # the paper's, of all models
    models = [row[:2] for row in table.rows if row[1] in ("Normal", "CoT")]
    assert models == [(name, setting) for name in ("weak", "strong") for setting in ("Normal", "CoT")]


def test_levels_are_charted_by_pairs(tmp_path: Path) -> None:
    benchmark = UniSandbox(Source(n=4, sets=("math1", "math2", "mapping1")))
    folder = evaluation(tmp_path / "one", [benchmark], lambda ask: ask.case.set == "math1")
    board = leaderboard([folder])
    titles = [one.title for section in page_of(board).sections for one in section.charts]
    assert titles == [f"unisandbox, {setting}, by level of maths" for setting in ("normal", "cot")]
    (chart, _) = board.by_complexity
    assert chart.title == "level of maths" and list(chart.lines) == ["one"]
    points = {x: (one.value, one.n) for x, one in chart.lines["one"].items()}
    assert points == {1.0: (1.0, 4), 2.0: (0.0, 4)}


def test_other_questions_are_shown_and_not_paired(tmp_path: Path) -> None:
    asked = [UniSandbox(Source(n=n, sets=("math1",))) for n in (3, 4)]
    folders = [evaluation(tmp_path / str(i), [one], lambda ask: True) for i, one in enumerate(asked)]
    board = leaderboard([f"{name}={folder}" for name, folder in zip("ab", folders, strict=True)])
    assert {cell.mark for cell in board.cells.values()} == {""}
    assert any("not all were asked the same questions, so none are compared" in note for note in board.notes)
    assert all(isinstance(cell.estimate, Estimate) and cell.best is None for cell in board.cells.values())
    folders.append(evaluation(tmp_path / "2", asked[:1], lambda ask: False))
    board = leaderboard([f"{name}={folder}" for name, folder in zip("abc", folders, strict=True)])
    marks = {name: cell.mark for (name, column), cell in board.cells.items() if column.setting == "normal"}
    assert marks == {"a": "best", "b": "", "c": "below"}, "none of other questions is the best of them"
    assert any("only these are compared: a and c." in note for note in board.notes)


def test_what_is_no_evaluation_or_cannot_be_told_apart_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        sample_evaluation(tmp_path / name, 3)
    (tmp_path / "store").mkdir()  # a shell's evals/*/ names all three
    assert list(leaderboard(sorted(tmp_path.iterdir())).evaluations) == ["one", "two"]
    for folders, said in (
        ([tmp_path / "one", tmp_path / "one"], "given twice"),
        ([f"a={tmp_path / 'one'}", f"a={tmp_path / 'two'}"], "two evaluations are called a"),
        ([tmp_path / "store"], "store is no evaluation"),
    ):
        with pytest.raises(UserError, match=said):
            leaderboard(folders)  # type: ignore[arg-type]


# A benchmark, its questions, the check that makes a sample right, a setting, and the headlines of that in its scores.
HEADLINES: list[tuple[str, Source | None, str, str, dict[str, str]]] = [
    ("unisandbox", Source(n=2, sets=("math1", "mapping1", "forward", "inverse")), "object", "cot",
     {"": "average/official/cot", "knowledge": "knowledge/official/cot"}),
    ("ureason", Source(n=2), "object", "direct", {"": "direct/overall"}),
    ("ueval", Source(n=2), "image 1", "two_passes", {"": "two_passes/overall"}),
    ("ufo", Source(n=3), "answer", "visual",
     {"multiple choice": "averages/mcq/visual/per question", "open questions": "averages/open/visual/per question"}),
    ("vigor", None, REASONING, "direct", {"": "direct/overall"}),
    ("wise", Source(n=3), "object", "direct", {"": "direct/overall"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "source", "check", "setting", "headlines"), HEADLINES)
def test_columns_are_the_headlines_of_the_papers_tables_and_what_a_paper_prints_is_never_a_models(
    tmp_path: Path, name: str, source: Source | None, check: str, setting: str, headlines: dict[str, str]
) -> None:
    if source is None:  # sets of different sizes: three mazes and an equation
        cases = [*generated(Source(world="everyday", n=3)), *generated(Source(n=1))]
        source = Source(data=write_vigor(tmp_path / "vigor", *cases))
    benchmark = opened(name, source)
    benchmark.published = True
    some = sorted({case.set.removesuffix("_open") for case in benchmark.cases()})[::2]
    right = lambda ask: ask.case.set.removesuffix("_open") in some  # noqa: E731
    board = leaderboard([evaluation(tmp_path / "mine", [benchmark], right, check=check)])
    scores = board.evaluations["mine"].results[name].scores
    assert {column.part for column in board.columns} == set(benchmark.metrics()) == set(headlines)
    for part, path in headlines.items():
        found, headline = board.cells["mine", Column(name, setting, part=part)].estimate, scores
        for key in path.split("/"):
            headline = headline[key]
        assert 0 < (found.value or 0) < 1
        assert (found.value, found.low) == (pytest.approx(headline["value"]), pytest.approx(headline["low"]))
    rows = [row for table in board.tables[name] for row in table.rows]
    theirs, mine = [row for row in rows if "in the paper" in str(row[1])], [row for row in rows if row[0] == "mine"]
    assert theirs and {row[0] for row in theirs} == {PAPER}
    assert mine and not any("paper" in str(row[1]) for row in mine)
