"""ViGoR-Bench: what settings ask, and what programs and judges tell of a sample."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.benchmarks.doubles import Judge, Model
from tests.eval.benchmarks.published import write_vigor
from uni_train.core.errors import UsageError
from uni_train.data_gen.maze.task import INSTRUCTION
from uni_train.eval.benchmark import Ask, Sample, Scored, Source
from uni_train.eval.benchmarks.vigor import Vigor
from uni_train.eval.benchmarks.vigor.cases import make_case
from uni_train.models.pictures import decode_png

MAZES = Source(n=3, sets=("maze_navigation",))


def painter(benchmark: Vigor, plan: str = "1. Look.\n2. Draw it.", sizes: bool = False) -> Model:
    """Draws the answer of a maze in two steps: the input again, then the solution; plans what it is told."""
    cases = {case.id: case for case in benchmark.cases()}

    def image(request: Any) -> np.ndarray:
        case = cases[request.id.partition("#")[0]]
        if request.id.endswith("/0"):
            shown = decode_png(case.images[0])
            return np.pad(shown, ((0, 1), (0, 0), (0, 0))) if sizes else shown
        return decode_png(benchmark.reference(case) or b"")

    def frames(request: Any) -> list[Any]:
        return ["Look.", image(replace(request, id=f"{request.id}/0")), image(request), "Done."] if plan else ["Done."]

    return Model(draw=image, compose=frames, think="go", answer=plan)


def scored_by(model: Any, benchmark: Vigor, settings: tuple[str, ...]) -> list[Scored]:
    asks = [Ask(case, setting, 0, 1) for setting in settings for case in benchmark.cases()]
    samples = benchmark.respond(model, asks)
    return [Scored(one, benchmark.check(one) if one.status == "ok" else None) for one in samples]


def marks(one: Scored) -> dict[str, float | None]:
    return {} if one.verdict is None else {check.name: check.value for check in one.verdict.checks}


def planned(**changes: Any) -> tuple[Vigor, Model]:
    model = painter(Vigor(MAZES), **changes)
    return Vigor(replace(MAZES, open_model=lambda _: model), planner="planner"), model  # type: ignore[arg-type, return-value]


def test_a_plan_is_drawn_step_by_step_and_its_frames_are_scored_apart() -> None:
    benchmark, model = planned()
    scored = scored_by(model, benchmark, ("direct", "cot", "planned", "process"))
    assert [one.outcome for one in scored] == ["pass"] * 9 + ["fail"] * 3
    assert scored[3].sample.thought == "go" and len(scored[6].sample.images) == 2
    assert scored[6].sample.text == "Look.\nDraw it."
    second = next(request for _, request in model.asked if request.id.endswith("/1"))
    (first,) = [decode_png(case.images[0]) for case in benchmark.cases() if second.id.startswith(f"{case.id}#")]
    assert second.prompt == "Draw it." and np.array_equal(second.images[0], first)  # the image of the step before
    # Two frames: both keep the maze, the second alone draws a path and comes nearer.
    assert marks(scored[9]) == {
        "background_consistency": 1, "visual_quality": 1, "rule_obey": 0.5, "reasoning_success": 0.5,
    }  # fmt: skip
    scores = benchmark.scores(scored)
    assert (scores["direct"]["overall"]["value"], scores["process"]["overall"]["value"]) == (1.0, 0.75)
    assert benchmark.units(scored, "")[-1].value == 0.75 and not benchmark.units(scored, "")[-1].right
    assert set(scores["sizes"]["direct"]) == {"maze_navigation"}
    tables = {table.title: table for table in benchmark.tables(scored)}
    copied = tables["Result metrics (Table 3)"].rows[-1]
    assert str(copied[0]).startswith("a copy of the input (3 mazes")
    assert copied[1:] == ("0.000", "0.000", "0.500", "1.000", "0.000", "1.000")
    benchmark.published = True
    (mazes,) = [table for table in benchmark.tables(scored) if table.title == "Maze navigation (Table 4)"]
    assert ("Qwen-Image-Edit-2509 in the paper", "0.000", None, "0.080", "0.000", "0.000", "0.320") in mazes.rows


def test_a_model_may_give_all_frames_in_one_answer() -> None:
    benchmark = Vigor(MAZES, interleaved="yes")
    assert benchmark.settings == ("direct", "cot", "interleaved", "process")
    scored = scored_by(painter(benchmark), benchmark, ("interleaved", "process"))
    assert [one.outcome for one in scored] == ["pass"] * 3 + ["fail"] * 3
    assert [type(part) for part in scored[0].sample.parts] == [str, bytes, bytes, str]
    assert marks(scored[3])["rule_obey"] == marks(scored[3])["reasoning_success"] == 0.5
    asks = [one.sample.ask for one in scored]
    assert benchmark.calls(asks) == {"think": 0, "draw": 0, "compose": 3, "judge": 0}
    silent = painter(benchmark, plan="")
    assert {one.outcome for one in scored_by(silent, benchmark, ("interleaved",))} == {"not_extracted"}
    with pytest.raises(UsageError, match=r"vigor\.planner and vigor\.interleaved"):
        Vigor(MAZES, interleaved="yes", planner="planner")


def test_no_plan_and_frames_of_several_sizes_are_statuses() -> None:
    benchmark, model = planned(plan="I would look.")
    assert {one.outcome for one in scored_by(model, benchmark, ("planned",))} == {"not_extracted"}
    benchmark, model = planned(sizes=True)
    one = scored_by(model, benchmark, ("process",))[0]
    assert one.outcome == "generation_failed" and one.sample.note.startswith("frames of different sizes: ")


FILLED_IN = json.dumps({"Background.Consistency": 1, "Rule_Obey": 1, "ReasoningAccuracy": 0, "VisualQuality": 1,
                        "Explanation": {"Accuracy": "wrong digits"}})  # fmt: skip
"""All is well but the result, in keys as a judge likes to write them."""


def test_program_and_judge_share_a_sample(tmp_path: Path) -> None:
    """A maze that a program checks, and a sudoku that only a judge can."""
    nano = Vigor(replace(MAZES, n=1))
    (maze,) = nano.cases()
    answer = nano.reference(maze)
    sudoku = make_case("sudoku", "1", INSTRUCTION, maze.images[0], answer_image=answer, size="4x4")
    write_vigor(tmp_path, replace(maze, references=sudoku.references), sudoku)

    def scored(**options: Any) -> tuple[Vigor, dict[str, Scored], list[Any]]:
        benchmark, judge = Vigor(Source(data=tmp_path), **options), Judge(lambda *_: FILLED_IN)
        found = {}
        for case in benchmark.cases():
            sample = Sample(Ask(case, "direct", 0, 1), parts=(case.images[0],))
            verdict = benchmark.check(sample)
            by = "program" if verdict is not None else "judge"
            found[case.set] = Scored(sample, verdict or asyncio.run(benchmark.judge(sample, judge)), by)
        return benchmark, found, [images for _, images in judge.asked]

    benchmark, found, shown = scored(visual_quality="judge")
    assert [len(images) for images in shown] == [3, 3] and shown[0][2] == answer  # input, output, ground truth
    checks = {check.name: check for check in found["maze_navigation"].verdict.checks}  # type: ignore[union-attr]
    assert checks["visual_quality"].status == "pass" and checks["reasoning_success"].status == "fail"
    assert checks["reasoning_success"].reason != "wrong digits"  # the program's, not the judge's
    assert found["sudoku"].verdict.reason == "wrong digits"  # type: ignore[union-attr]
    assert benchmark.attribute(found["sudoku"]) == "reasoning wrong"
    measures = benchmark.scores(found.values())["measures"]["direct"]
    assert measures["mean"]["sudoku"]["value"] == 0.75 and measures["all_four"]["sudoku"]["value"] == 0
    *_, hidden = scored(ground_truth="hidden")
    assert [len(images) for images in hidden] == [2]  # the maze's quality is the program's
