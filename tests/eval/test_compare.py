from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.eval.sample_evaluation import write_evaluation
from uni_train.console.progress import ConsoleProgress
from uni_train.core.errors import UserError
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Benchmark, Case, Sample, Scored, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.ureason import UReason
from uni_train.eval.compare import compare
from uni_train.eval.evaluation import SCORES
from uni_train.eval.generation import asks_of
from uni_train.eval.report.tables import print_table
from uni_train.eval.results import Results, Unit

Right = Callable[[Ask], bool]


def evaluation(
    folder: Path,
    benchmarks: Sequence[Benchmark],
    right: Right,
    settings: Sequence[str] | None = None,
    check: str = "object",
    **asked: Any,
) -> Path:
    """A finished evaluation whose model is right where `right` says so; check: what is looked at."""
    parts = []
    for benchmark in benchmarks:
        chosen = tuple(settings or benchmark.settings)
        scored = [
            Scored(
                Sample(ask, parts=(f"{folder.name} {ask.case.id}".encode(),)),
                Verdict((Check(check, "pass" if right(ask) else "fail"),)),
            )
            for ask in asks_of(benchmark.cases(), chosen, k=asked.get("k", 1), seed=asked.get("seed", 0))
        ]
        parts.append((benchmark, chosen, scored))
    write_evaluation(folder, parts, **asked)
    return folder


def test_pairs_are_compared_as_pairs_and_flips_are_named(tmp_path: Path) -> None:
    benchmark = UniSandbox(Source(n=8, sets=("math1", "mapping1")))
    maths = [case.id for case in benchmark.cases() if case.set == "math1"]
    pairs = list(dict.fromkeys(case.cluster for case in benchmark.cases() if case.cluster))

    def before(ask: Ask) -> bool:
        first_of_pair = ask.case.set == "mapping1" and ask.case.id[-1] == "A"
        return ask.setting == "cot" or ask.case.id == maths[0] or first_of_pair

    def after(ask: Ask) -> bool:
        return ask.setting == "cot" or ask.case.id in maths[1:] or ask.case.cluster in pairs[:3]

    one = evaluation(tmp_path / "before", [benchmark], before)
    two = evaluation(tmp_path / "after", [benchmark], after)
    found = compare(one, two)
    cells = {(row.setting, row.set): row for row in found.rows}
    counted = {key: (row.n, row.comparison.only_first, row.comparison.only_second) for key, row in cells.items()}
    assert [counted["normal", name] for name in ("math1", "mapping1")] == [(8, 1, 7), (8, 0, 3)]
    assert [counted["cot", name] for name in ("math1", "mapping1")] == [(8, 0, 0)] * 2 and len(counted) == 4
    assert cells["normal", "math1"].comparison.difference.value == 0.75
    lost = [flip for flip in found.flips if flip.direction == "right to wrong"]
    assert [flip.ids for flip in lost] == [(maths[0],)]
    won = [flip for flip in found.flips if flip.set == "mapping1"]
    assert [flip.unit for flip in won] == pairs[:3] and all(len(flip.ids) == 2 for flip in won)
    assert found.notes == ()
    table = found.tables()[0]
    assert table.title == "unisandbox: after (second) against before (first)"
    assert table.columns[2:4] == ("First", "Second") and table.rows[0][2:4] == ("0.12", "0.88")
    plain = found.first.results["unisandbox"].scores["strategies"]["math1"][0]
    assert f"Best trivial strategy (chance): math1 {plain['value']:.2f} (0.17), mapping1" in table.note
    assert json.loads(json.dumps(found.to_dict()))["rows"][0]["only_second"] == 7


def test_a_setting_that_only_one_has_is_left_out(tmp_path: Path) -> None:
    benchmark = UniSandbox(Source(n=3, sets=("math1",)))
    one = evaluation(tmp_path / "before", [benchmark], lambda ask: False, ["normal", "cot"])
    two = evaluation(tmp_path / "after", [benchmark], lambda ask: True, ["cot"])
    found = compare(one, two)
    assert [(row.setting, row.n) for row in found.rows] == [("cot", 3)]
    with pytest.raises(UserError, match=r"asked unisandbox in different settings"):
        compare(evaluation(tmp_path / "normal", [benchmark], lambda ask: True, ["normal"]), two)


def test_both_labels_are_compared(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    rows = [{"Question": "Draw as many chairs as 2 + 2.", "Answer": f"{n} chairs", "id": str(n)} for n in (3, 4)]
    (files / "math_1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    benchmark = UniSandbox(Source(data=files), labels="both", settings=("normal",))
    one = evaluation(tmp_path / "before", [benchmark], lambda ask: False)
    two = evaluation(tmp_path / "after", [benchmark], lambda ask: ask.case.facts["answer"] == "4 chairs")
    found = compare(one, two)
    won = {row.label: (row.n, row.comparison.only_second) for row in found.rows}
    assert won == {"official": (2, 1), "corrected": (2, 2)}
    (table,) = found.tables()
    assert [row[0] for row in table.rows] == ["normal, official labels", "normal, corrected labels"]
    progress = ConsoleProgress(Console(file=io.StringIO(), width=100))
    print_table(table, progress)
    assert progress.console.file.getvalue().count("Setting") == 1, "a table of 100 letters is not folded"  # type: ignore[attr-defined]


def test_several_draws_are_clustered(tmp_path: Path) -> None:
    benchmark = UniSandbox(Source(n=4, sets=("math1",)), settings=("normal",))
    one = evaluation(tmp_path / "before", [benchmark], lambda ask: False, k=3)
    two = evaluation(tmp_path / "after", [benchmark], lambda ask: ask.k == 0 or ask.case == benchmark.cases()[0], k=3)
    row = compare(one, two).rows[0]
    assert (row.n, row.comparison.difference.n, row.comparison.only_second) == (12, 4, 6)


class Reworded(UniSandbox):
    """With other prompts under the same ids."""

    def cases(self) -> Sequence[Case]:
        return [replace(case, prompt=f"{case.prompt} please") for case in super().cases()]


def test_what_is_not_alike_is_refused_or_said(tmp_path: Path) -> None:
    small, large = UniSandbox(Source(n=2, sets=("math1",))), UniSandbox(Source(n=3, sets=("math1",)))
    reworded, same = Reworded(Source(n=2, sets=("math1",))), {"options": {"labels": "official"}}
    reworded.revision = "of other prompts"
    one = evaluation(tmp_path / "one", [small], lambda ask: True, **same)

    def against(name: str, benchmark: Benchmark = small, **asked: Any) -> Path:
        return evaluation(tmp_path / name, [benchmark], lambda ask: True, **asked)

    for other, message in [
        (against("two", large, options={"labels": "both"}), r"of unisandbox: labels was official and both"),
        (against("more", large, **same), r"1 cases are in one alone, such as \S+, which is in .*more"),
        (against("other", reworded, **same), r"prompt of .* is '.*' and '.* please.*"),
        (against("three", subset=5), r"--subset was all and 5"),
        (against("four", seed=7), r"--seed was 0 and 7"),
        (against("five", k=2), r"--k was 1 and 2"),
        (against("six", UReason(Source(world="nano", n=3))), r"no benchmark in common"),
    ]:
        with pytest.raises(UserError, match=message):
            compare(one, other)
    (tmp_path / "six" / SCORES).unlink()
    with pytest.raises(UserError, match="is not finished"):
        compare(one, tmp_path / "six")
    judged = against("seven", judge={"model": "openai/gpt"})
    assert compare(one, judged).notes == ("judged by nobody and by openai/gpt: a difference may be the judges'",)
    traced = against("eight", options={"ueval.trace_model": {"content": "b"}})
    assert compare(one, traced).notes == ("ueval.trace_model is not the same: a difference may be its own",)


def test_graded_scores_are_compared_by_their_means(tmp_path: Path) -> None:
    """A unit's value counts, not whether it is right; there is no detectable flip then."""
    from uni_train.eval.compare import _compare_units

    def units(*values: float) -> Results:
        return Results(Unit("plain", "words", f"u{i}", 0, (f"u{i}",), v == 1, f"u{i}", v) for i, v in enumerate(values))

    (row,), flips = _compare_units("echo", "", units(0.2, 0.5, 1.0, 0.4), units(0.4, 0.6, 0.9, 0.8))
    assert (row.first, row.second, row.detectable) == (pytest.approx(0.525), pytest.approx(0.675), None)
    assert row.comparison.difference.value == pytest.approx(0.15) and len(flips) == 1
