"""ViGoR-Bench: settings, programs and judges; nano for real, a judge on a real port."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.schema import EvalConfig, JudgeConfig
from uni_train.data_gen.maze.task import INSTRUCTION
from uni_train.errors import UsageError
from uni_train.eval.benchmark import Ask, Scored, Source
from uni_train.eval.benchmarks.vigor import Vigor, programs
from uni_train.eval.benchmarks.vigor.counting import PAPER
from uni_train.eval.benchmarks.vigor.files import Record, write_folder
from uni_train.eval.evaluation import EvaluationPlan, run
from uni_train.models.pictures import decode_png

MAZES = Source(n=3, sets=("maze_navigation",))


class Painter:
    """Draws the answer of a maze in two steps: the input again, then the solution; plans what it is told."""

    name = "painter"

    def __init__(self, benchmark: Vigor, plan: str = "1. Look.\n2. Draw it.", sizes: bool = False) -> None:
        self.cases = {case.id: case for case in benchmark.cases()}
        self.benchmark, self.plan, self.sizes = benchmark, plan, sizes
        self.asked: list[Any] = []

    def draw(self, requests: Any, *, on_step: Any = None) -> list[np.ndarray]:
        self.asked += requests
        return [self.image(request) for request in requests]

    def image(self, request: Any) -> np.ndarray:
        case = self.cases[request.id.partition("#")[0]]
        if request.id.endswith("/0"):
            shown = decode_png(case.images[0])
            return np.pad(shown, ((0, 1), (0, 0), (0, 0))) if self.sizes else shown
        return decode_png(self.benchmark.reference(case) or b"")

    def compose(self, requests: Any, *, on_step: Any = None) -> list[Any]:
        self.asked += requests
        frames = [(replace(one, id=f"{one.id}/0"), one) for one in requests]
        return [["Look.", *map(self.image, some), "Done."] if self.plan else ["Done."] for some in frames]

    def think(self, requests: Any, *, on_step: Any = None) -> list[str]:
        return ["go" for _ in requests]

    def answer(self, requests: Any, *, on_step: Any = None) -> list[str]:
        return [self.plan for _ in requests]


def scored_by(model: Painter, benchmark: Vigor, settings: tuple[str, ...]) -> list[Scored]:
    asks = [Ask(case, setting, 0, 1) for setting in settings for case in benchmark.cases()]
    samples = benchmark.respond(model, asks)
    return [Scored(one, benchmark.check(one) if one.status == "ok" else None) for one in samples]


def planned(**changes: Any) -> tuple[Vigor, Painter]:
    benchmark = Vigor(MAZES)
    model = Painter(benchmark, **changes)
    benchmark.planner = model  # type: ignore[assignment]
    return benchmark, model


def test_a_plan_is_drawn_step_by_step_and_its_frames_are_scored_apart() -> None:
    benchmark, model = planned()
    scored = scored_by(model, benchmark, ("direct", "cot", "planned", "process"))
    assert [one.outcome for one in scored] == ["pass"] * 9 + ["fail"] * 3
    assert scored[3].sample.thought == "go" and len(scored[6].sample.images) == 2
    assert scored[6].sample.text == "Look.\nDraw it."
    second = next(request for request in model.asked if request.id.endswith("/1"))
    first = decode_png(model.cases[second.id.partition("#")[0]].images[0])
    assert second.prompt == "Draw it." and np.array_equal(second.images[0], first)  # the image of the step before
    # Two frames: both keep the maze, the second alone draws a path and comes nearer.
    marks = {check.name: check.value for check in scored[9].verdict.checks}  # type: ignore[union-attr]
    assert marks == {
        "background_consistency": 1, "visual_quality": 1, "rule_obey": 0.5, "reasoning_success": 0.5,
    }  # fmt: skip
    scores = benchmark.scores(scored)
    assert json.loads(json.dumps(scores)) == scores
    assert (scores["direct"]["overall"]["value"], scores["process"]["overall"]["value"]) == (1.0, 0.75)
    assert benchmark.units(scored, "")[-1].value == 0.75 and not benchmark.units(scored, "")[-1].right
    assert set(scores["sizes"]["direct"]) == {"maze_navigation"}
    tables = {table.title: table for table in benchmark.tables(scored)}
    assert all(all(table.columns) for table in tables.values())
    copied = tables["Result metrics (Table 3)"].rows[-1]
    assert copied[0].startswith("a copy of the input (3 mazes") and copied[1:] == (  # type: ignore[union-attr]
        "0.000", "0.000", "0.500", "1.000", "0.000", "1.000",
    )  # fmt: skip


def test_a_model_may_give_all_frames_in_one_answer() -> None:
    benchmark = Vigor(MAZES, interleaved=True)
    assert benchmark.settings == ("direct", "cot", "interleaved", "process")
    model = Painter(benchmark)
    scored = scored_by(model, benchmark, ("interleaved", "process"))
    assert [one.outcome for one in scored] == ["pass"] * 3 + ["fail"] * 3
    assert [type(part) for part in scored[0].sample.parts] == [str, bytes, bytes, str]
    marks = {check.name: check.value for check in scored[3].verdict.checks}  # type: ignore[union-attr]
    assert marks["rule_obey"] == marks["reasoning_success"] == 0.5
    asks = [one.sample.ask for one in scored]
    assert benchmark.calls(asks) == {"think": 0, "draw": 0, "compose": 3, "judge": 0}
    model.plan = ""
    assert {one.outcome for one in scored_by(model, benchmark, ("interleaved",))} == {"not_extracted"}
    with pytest.raises(UsageError, match=r"vigor\.planner and vigor\.interleaved"):
        Vigor(MAZES, interleaved=True, planner=model)  # type: ignore[arg-type]


def test_no_plan_and_frames_of_several_sizes_are_statuses() -> None:
    benchmark, model = planned(plan="I would look.")
    assert {one.outcome for one in scored_by(model, benchmark, ("planned",))} == {"not_extracted"}
    benchmark, model = planned(sizes=True)
    one = scored_by(model, benchmark, ("process",))[0]
    assert one.outcome == "generation_failed" and one.sample.note.startswith("frames of different sizes: ")


def published(folder: Path) -> Path:
    """A maze that a program checks, and a sudoku that only a judge can."""
    maze = programs.own_records("nano", 1, "test", 0, ["maze_navigation"])[0]
    assert maze.item is not None
    sudoku = Record("sudoku/1", "sudoku", INSTRUCTION, maze.image, size="4x4")
    answer = programs.answer_image(maze.item)
    write_folder(folder, [(maze, answer), (sudoku, answer)])
    return folder


def fill_in(asked: Asked) -> str:
    """A judge to whom everything is well but the result, and who writes keys as it likes."""
    return json.dumps({"Background.Consistency": 1, "Rule_Obey": 1, "ReasoningAccuracy": 0, "VisualQuality": 1,
                       "Explanation": {"Accuracy": "wrong digits"}})  # fmt: skip


@pytest.mark.slow
def test_program_and_judge_share_a_sample_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    folder = published(tmp_path / "datasets--VincentHancoder--ViGoR-Bench/snapshots/0abc")  # as the Hub's cache
    answer = programs.own_records("nano", 1, "test", 0, ["maze_navigation"])[0].item
    assert answer is not None

    def plan(**options: Any) -> EvaluationPlan:
        benchmark = Vigor(Source(data=folder), **options)
        judge = JudgeConfig(model=f"{server.url}#judge")
        return EvaluationPlan(
            checkpoint="nano_edit", benchmarks=[benchmark], options=options,
            config=EvalConfig(settings=("direct",), judge=judge, out=str(tmp_path / "evals")),
        )  # fmt: skip

    with JudgeServer(fill_in) as server:
        shared = run(plan(visual_quality="judge"))
        first = len(server.asked)
        again = run(plan(visual_quality="judge"))
        assert len(server.asked) == first == 2
        run(plan(ground_truth="hidden"))
        hidden = server.asked[first:]
    images = [base64.b64decode(url.partition(",")[2]) for url in server.asked[0].images]
    assert len(images) == 3 and images[2] == programs.answer_image(answer)  # input, output, ground truth
    assert len(hidden) == 1 and len(hidden[0].images) == 2  # the maze's quality is the program's
    found = {one.sample.ask.case.set: one for one in shared.scored("vigor")}
    maze, sudoku = found["maze_navigation"], found["sudoku"]
    checks = {check.name: check for check in maze.verdict.checks}  # type: ignore[union-attr]
    assert checks["visual_quality"].status == "pass" and checks["reasoning_success"].status == "fail"
    assert checks["reasoning_success"].reason != "wrong digits"  # the program's, not the judge's
    assert (sudoku.cause, sudoku.by, sudoku.verdict.reason) == ("reasoning wrong", "judge", "wrong digits")  # type: ignore[union-attr]
    assert again.results["vigor"].scores == shared.results["vigor"].scores and again.calls["draw"]["made"] == 0
    measures = shared.results["vigor"].scores["measures"]["direct"]
    assert measures["mean"]["sudoku"]["value"] == 0.75 and measures["all_four"]["sudoku"]["value"] == 0
    rows = shared.results["vigor"].tables[0].rows
    assert len(rows) == 1 + 1 + len(PAPER["Table 3"])  # ours, a copy of the input, the paper's


@pytest.mark.slow
def test_nano_is_scored_by_program_alone(tmp_path: Path) -> None:
    benchmark = Vigor(Source(n=3))
    found = run(
        EvaluationPlan(
            checkpoint="shipped", benchmarks=[benchmark], config=EvalConfig(settings=("cot",), out=str(tmp_path))
        )
    )
    result = found.results["vigor"]
    assert not result.unjudged and result.judge is None and result.n == 3
    assert result.scores["cot"]["algebraic_calculation"]["value"] > 0  # the shipped nano solves some
    assert (
        "background_consistency" not in result.scores["measures"]["cot"]
        or not result.scores["measures"]["cot"]["background_consistency"]
    )
