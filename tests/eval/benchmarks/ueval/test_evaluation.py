"""UEval through the whole evaluator: the shipped nano answers; a program decides, or a judge on a real port."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.eval.benchmarks.ueval.test_files import row, write
from tests.eval.judges.server import Asked, JudgeServer, Refused
from uni_train.config.schema import EvalConfig, JudgeConfig
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.evaluation import EvaluationPlan, run

pytestmark = pytest.mark.slow


def test_nano_is_scored_by_program_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    def plan(name: str) -> EvaluationPlan:
        return EvaluationPlan(
            checkpoint="shipped", benchmarks=[UEval(n=3)], config=EvalConfig(out=str(tmp_path), name=name)
        )

    first = run(plan("a"))
    result = first.results["ueval"]
    assert result.n == 2 * (3 + 6 + 3) and not result.unjudged and not result.not_scored
    assert first.calls["answer"]["made"] == first.calls["think"]["made"] == 12 and first.calls["draw"]["made"] == 24
    assert all(one.by == "program" and bool(one.cause) != one.passed for one in first.scored("ueval"))
    assert {"maths", "mapping", "any_number", "closed-ended", "open-ended", "overall"} == set(
        result.scores["two_passes"]
    )
    assert result.scores["think_first"]["overall"]["value"] > result.scores["two_passes"]["overall"]["value"]
    again = run(plan("b"))
    assert {counts["made"] for counts in again.calls.values()} == {0}
    assert again.results["ueval"] == result
    lacking = run(
        EvaluationPlan(
            checkpoint="shipped", benchmarks=[UEval(n=1, passes="one")], config=EvalConfig(out=str(tmp_path))
        )
    )
    (table,) = lacking.results["ueval"].tables
    assert {row[2] for row in table.rows} == {"no such skill: nano cannot answer with text and images in one pass"}


def test_a_judge_is_asked_about_each_rubric_and_one_bad_reply_costs_one_rubric(tmp_path: Path) -> None:
    rows = [
        row(id=1, prompt="Draw as many apples as 1 + 2 ."),
        row(id=2, task="art", prompt="Draw some cups .", image_rubrics=["It is refused.", "It shows cups."]),
    ]
    data = write(tmp_path / "data", *rows)
    refusing = True

    def look(asked: Asked) -> str | Refused:
        rubric = re.findall(r"#### Rubric Item\n\n(.*)\n", asked.words)[0]
        if rubric == "It is refused." and refusing:
            return Refused(400, "not that")
        if rubric == "It names the year.":
            return "I would rather say: true."
        return json.dumps({"explanation": rubric, "criteria_met": "not sure" if "stairs" in rubric else True})

    def plan(name: str, judge: JudgeConfig) -> EvaluationPlan:
        return EvaluationPlan(checkpoint="shipped", benchmarks=[UEval(data)], config=EvalConfig(
            settings=("two_passes",), judge=judge, out=str(tmp_path / "evals"), name=name))  # fmt: skip

    with JudgeServer(look) as server:
        judge = JudgeConfig(model=f"{server.url}#judge")
        first = run(plan("a", judge))
        asked = len(server.asked)
        found = {one.sample.ask.case.id: one for one in first.scored("ueval")}
        assert [c.status for c in found["1"].verdict.checks] == ["pass", "fail", "unreadable"]  # type: ignore[union-attr]
        assert [c.status for c in found["2"].verdict.checks] == ["unreadable", "pass", "fail", "unreadable"]  # type: ignore[union-attr]
        scores = first.results["ueval"].scores
        assert scores["two_passes"]["space"]["value"] == 0.5 and scores["two_passes"]["art"]["value"] == 0.25
        assert scores["rubrics"]["two_passes"]["unreadable"] == 3
        assert all(len(one.images) == 1 for one in server.asked)
        again = run(plan("b", judge))
        later = server.asked[asked:]
        assert again.results["ueval"].scores == scores
        assert all("It is refused." in one.words for one in later)  # what has a reply is not asked again
        refusing = False
        healed = run(plan("c", judge)).results["ueval"].scores
    assert healed["image"]["two_passes"]["art"]["value"] == 1.0 and healed["rubrics"]["two_passes"]["unreadable"] == 2
