"""ViGoR-Bench: files, templates, what settings ask, and what programs and judges tell of a sample."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.benchmarks.doubles import Judge, Model, checked
from tests.eval.benchmarks.published import PNG, row, write, write_vigor
from uni_train.core.errors import DataError, UsageError
from uni_train.data_gen.maze.task import INSTRUCTION
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Ask, Sample, Scored, Source
from uni_train.eval.benchmarks.vigor import Vigor, prompts
from uni_train.eval.benchmarks.vigor.cases import DOMAINS, TASKS, generated, make_case, read_folder, task_named
from uni_train.eval.benchmarks.vigor.programs import read_maze
from uni_train.eval.benchmarks.vigor.prompts import DIMENSIONS, TABLES, dimension_of, family_of, read_marks
from uni_train.models.base import Request
from uni_train.models.pictures import decode_png


def test_fields_are_probed_and_reported(tmp_path: Path) -> None:
    grid = {"Input-Image": "a.png", "prompt": "Fill.", "GT_image": "b.png", "grid_size": "4×4"}
    write(tmp_path, "vigor", grid)
    place = "Sorting_and_Categorization"
    sort = {"id": 7, "image": f"{place}/a.png", "instruction": "Sort.", "answer": "2"}
    write(tmp_path, "vigor", sort, file=f"Physical_Reasoning/{place}/records.json")
    (sorting, sudoku), fields = read_folder(tmp_path)
    assert (sorting.id, sorting.facts["answer"]) == ("sorting_and_categorization/7", "2")
    assert sorting.references == () and sorting.category == ""
    assert (sudoku.id, sudoku.prompt, sudoku.category, sudoku.images) == ("sudoku/0", "Fill.", "4x4", (PNG,))
    assert fields["sudoku"] == {
        "image": ["Input-Image"], "instruction": ["prompt"], "answer_image": ["GT_image"], "size": ["grid_size"],
    }  # fmt: skip
    benchmark = Vigor(Source(data=tmp_path))
    assert benchmark.sets == ("sorting_and_categorization", "sudoku") and benchmark.user_files
    assert benchmark.tables([])[-1].rows[0][0] == "Sorting and categorization"
    write(tmp_path, "vigor", row("vigor", hint="easy"))
    assert read_folder(tmp_path, fields=["hint=answer"])[0][1].facts["answer"] == "easy"
    write(tmp_path, "vigor", row("vigor"), file="Origami/records.json")
    with pytest.raises(DataError, match=r"Origami.*no such task"):
        read_folder(tmp_path)
    (tmp_path / "Origami" / "records.json").unlink()
    for rows, said in (("{}", "must be an array"), ("[]", "has no rows")):
        (tmp_path / "Sudoku" / "records.json").write_text(rows)
        with pytest.raises(DataError, match=rf"records\.json.*{said}"):
            read_folder(tmp_path)


def test_questions_of_our_own_survive_the_layout(tmp_path: Path) -> None:
    cases = [*generated(Source(n=2, sets=("maze_navigation",))), *generated(Source(n=3))]
    read, _ = read_folder(write_vigor(tmp_path, *cases))
    assert sorted(read, key=lambda case: case.id) == sorted(cases, key=lambda case: case.id)


def test_a_published_maze_is_read_where_its_answer_proves_it() -> None:
    benchmark = Vigor(Source(world="everyday", n=2))
    case = benchmark.cases()[1]
    answer = benchmark.reference(case)
    published = make_case(case.set, "0", case.prompt, case.images[0], answer_image=answer)
    read = read_maze(published)
    assert read is not None and read.facts["maze"] == case.facts["item"]["facts"]["maze"]
    assert read_maze(replace(published, references=case.images)) is None  # no path, no proof


KINDS = ("process", "result")
# Of all 18 files, as extracted from the paper: a template is not edited by chance.
DIGEST = "8193121bb529c6ef2178b43a76fa90c1"


def test_templates_are_the_printed_ones() -> None:
    assert sorted(number for pair in TABLES.values() for number in pair) == list(range(5, 23))
    text = "\0".join(prompts.template(family, kind) for family in sorted(TABLES) for kind in KINDS)
    assert hashlib.blake2b(text.encode(), digest_size=16).hexdigest() == DIGEST
    assert {family_of(task) for task in TASKS} == set(TABLES) and len(TASKS) == 20


@pytest.mark.parametrize("family", TABLES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_template_asks_for_four_dimensions_under_keys_that_are_known(family: str, kind: str) -> None:
    asked = prompts.judge_prompt(family, kind, "Draw {gt_prompt}.", "")
    assert "{ {" not in asked and "{instruction}" not in asked
    if family in ("knowledge", "physical"):  # what is filled in is not filled in again
        assert "Draw {gt_prompt}." in asked and prompts.NO_REFERENCE in asked
    form = asked.split("```")[1]
    assert form.count("{") == form.count("}") == 2
    keys = re.findall(r'"([A-Z][\w.]*)": (?:integer|0 or 1)', form)
    assert sorted(name for key in keys if (name := dimension_of(key))) == sorted(DIMENSIONS)
    worth = 100 if kind == "process" else 1
    reply = {key: worth for key in keys} | {"Explanation": {"Background": "kept"}}
    marks = read_marks(f"```json\n{json.dumps(reply)}\n```", kind)
    assert marks.passed and [check.reason for check in marks.checks] == ["kept", "", "", ""]
    assert {check.value for check in marks.checks} == {1.0 if kind == "process" else None}


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"RuleObey": 2}, "result", "RuleObey must be 0 or 1"),
        ({"RuleObey": True}, "process", "an integer from 0 to 100, not true"),
        ({"RuleObey": 0.5}, "process", "an integer from 0 to 100"),
        ({"Rule.Obey": 1}, "result", "gives rule_obey twice"),
        ({"RuleObey": None}, "result", "not null"),
        ({}, "result", "lacks visual_quality"),
    ],
)
def test_a_reply_that_does_not_answer_says_why(change: dict[str, object], kind: str, said: str) -> None:
    reply = {"BackgroundConsistency": 1, "RuleObey": 1, "ReasoningAccuracy": 1, "VisualQuality": 1, **change}
    if not change:
        del reply["VisualQuality"]
    with pytest.raises(ValueError, match=re.escape(said)):
        read_marks(json.dumps(reply), kind)


def test_keys_and_folders_are_known_by_several_names() -> None:
    for key in ("BeneficialAction", "Beneficial_Action", "Beneficial.Action", "Reasoning Accuracy"):
        assert dimension_of(key) == "reasoning_success"
    for name, task in {"Maze_Navigation": "maze_navigation", "Measurement & Verification": "measurement_verification",
                       "Common-Sense": "common_sense", "Jigsaw Puzzle": "jigsaw_puzzle",
                       "Sorting_and_Categorization": "sorting_and_categorization"}.items():  # fmt: skip
        assert task_named(name) == task
    assert task_named("Origami") is None and [len(tasks) for tasks in DOMAINS.values()] == [6, 7, 7]


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
    return checked(benchmark, benchmark.respond(model, asks))


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
    assert copied[1:] == ("0.000", "0.000", "0.500", "0.333", "1.000", "0.000", "1.000")
    benchmark.published = True
    (mazes,) = [table for table in benchmark.tables(scored) if table.title == "Maze navigation (Table 4)"]
    assert ("Qwen-Image-Edit-2509 in the paper", "0.000", None, "0.080", None, "0.000", "0.000", "0.320") in mazes.rows


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


@pytest.mark.parametrize("world", ["nano", "everyday"])
def test_questions_of_our_own_have_result_and_process_by_program(world: str) -> None:
    """A puzzle's own frames are a process without fault; a copy of the input solves and leads nowhere."""
    sets = ("klotski_puzzle", "sudoku", "jigsaw_puzzle", "function_plotting")
    benchmark = Vigor(Source(world=world, n=2, sets=sets), interleaved="yes")
    items = {case.prompt + case.id: Item.from_dict(case.facts["item"]) for case in benchmark.cases()}
    cases = {case.id: case for case in benchmark.cases()}

    def frames(request: Request) -> list[Any]:
        item = items[request.prompt + request.id.partition("#")[0]]
        return ["So.", *task_of(item).frames(item)[1:]]

    solved = scored_by(Model(compose=frames), benchmark, ("interleaved", "process"))
    assert len(cases) == 8 and {one.outcome for one in solved[:8]} == {"pass"}
    assert {marks(one)["reasoning_success"] for one in solved[8:]} == {1}
    klotski = [marks(one) for one in solved[8:] if one.sample.ask.case.set == "klotski_puzzle"]
    assert klotski == [dict.fromkeys(("background_consistency", "rule_obey", "reasoning_success"), 1)] * 2
    measures = benchmark.scores(solved)["measures"]["interleaved"]
    assert measures["mean_of_four"] == {} and measures["mean_without_quality"]["overall"]["value"] == 1
    judged = Vigor(Source(world=world, n=1, sets=sets[:1]), visual_quality="judge")
    (case,) = judged.cases()
    sample = Sample(Ask(case, "direct", 0, 1), parts=(judged.reference(case) or b"",))
    assert judged.check(sample) is None and judged.complexity(case) == ("level of klotski puzzle", 1.0)
    verdict = asyncio.run(judged.judge(sample, Judge(lambda *_: FILLED_IN)))
    scores = judged.scores([Scored(sample, verdict, "judge")])["measures"]["direct"]
    assert scores["mean_of_four"]["overall"]["value"] == scores["mean_without_quality"]["overall"]["value"] == 1
    copied = scored_by(Model(compose=lambda request: [request.images[0]]), benchmark, ("interleaved", "process"))
    assert {one.outcome for one in copied} == {"fail"} and {marks(one)["reasoning_success"] for one in copied[8:]} == {
        0
    }
    with pytest.raises(DataError, match=f"the {world} world has no biology of our own, only .*, klotski_puzzle"):
        Vigor(Source(world=world, n=2, sets=("biology",)))


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
    assert measures["mean_of_four"]["sudoku"]["value"] == 0.75 and measures["all_dimensions"]["sudoku"]["value"] == 0
    *_, hidden = scored(ground_truth="hidden")
    assert [len(images) for images in hidden] == [2]  # the maze's quality is the program's
