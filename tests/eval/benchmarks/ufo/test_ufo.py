"""UFO: the loader, replies, the rubric's caps, the paper's rows, and the protocol on nano with a judge over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.schema import EvalConfig, JudgeConfig
from uni_train.data_gen.errors import DataError
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UserError
from uni_train.eval.benchmark import Ask, Sample, Scored
from uni_train.eval.benchmarks.ufo import Ufo, counting, prompts, replies, rubric
from uni_train.eval.benchmarks.ufo.counting import PAPER, mean_of, task_mean
from uni_train.eval.benchmarks.ufo.files import _column, read_folder
from uni_train.eval.benchmarks.ufo.names import ANSWERS, DIMENSIONS, KINDS, REGIMES, TEXT_CUE
from uni_train.eval.evaluation import EvaluationPlan, run
from uni_train.eval.images import bytes_of
from uni_train.models.pictures import encode_png

IMAGE = encode_png(np.zeros((8, 8, 3), np.uint8))
ROW: dict[str, Any] = {
    "id": "1", "category": "State Reconstruction", "task": "Jigsaw", "question_type": "mcq", "input_images": ["in.png"],
    "question": "Which fits?", "choice_a": "in.png", "choice_b": "other.png", "choice_c": None, "choice_d": None,
    "answer": "B", "text_cue": "A horn.", "cue_image": "in.png", "solution": "",
}  # fmt: skip


def folder_with(folder: Path, *rows: dict[str, Any], name: str = "mcq.jsonl") -> Path:
    (folder / "in.png").write_bytes(IMAGE)
    (folder / "other.png").write_bytes(IMAGE)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_choices_may_be_images_and_open_questions_have_none(tmp_path: Path) -> None:
    folder_with(tmp_path, ROW)
    folder_with(tmp_path, {**ROW, "task": "Inpainting_A", "answer": "Triangle", "cue_image": None}, name="open.jsonl")
    mcq, open_ = read_folder(tmp_path)
    assert (mcq.task, mcq.answer, mcq.choices) == ("jigsaw", "B", {"A": IMAGE, "B": IMAGE})
    assert (open_.task, open_.part, open_.choices, open_.cue_image) == ("inpainting", "a", {}, None)
    benchmark = Ufo(tmp_path)
    assert benchmark.sets == ("jigsaw", "inpainting_open")
    assert len(benchmark.cases()[0].images) == 3


def test_parquet_with_bytes_reads_as_json_lines_do(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    image = {"bytes": IMAGE, "path": None}
    row = {**ROW, "input_images": [image], "choice_a": image, "choice_b": image, "cue_image": image}
    (tmp_path / "data").mkdir()
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "data" / "mcq-00000-of-00001.parquet")
    folder = tmp_path / "lines"
    folder.mkdir()
    assert read_folder(tmp_path) == read_folder(folder_with(folder, ROW))


def test_images_in_parquet_are_read_again_from_their_batch(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    def image(number: int) -> dict[str, Any]:
        return {"bytes": encode_png(np.full((4, 4, 3), number, np.uint8)), "path": None}

    rows = [
        {**ROW, "id": str(i), "input_images": [image(i), image(i + 100)], "choice_a": "x", "choice_b": "y",
         "cue_image": image(200) if i % 2 else None}
        for i in range(90)
    ]  # fmt: skip
    file = tmp_path / "mcq.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=70)
    found = read_folder(tmp_path)
    for place in (0, 31, 32, 69, 70, 89):
        one = found[place]
        assert not any(isinstance(shown, bytes) for shown in one.images)
        assert [bytes_of(shown) for shown in one.images] == [image(place)["bytes"], image(place + 100)["bytes"]]
        assert (one.cue_image is None) == (place % 2 == 0)
    _column.cache_clear()
    parquet.write_table(pa.Table.from_pylist(rows[::-1]), file, row_group_size=70)
    with pytest.raises(UserError, match="has changed since it was opened"):
        bytes_of(found[0].images[0])
    _column.cache_clear()
    file.unlink()
    with pytest.raises(UserError, match="cannot be read again"):
        bytes_of(found[0].images[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": "Jigsaws and more", "id": "2", "answer": "E"}, 'line 2: "answer" is "E"'),
        ({"id": "1"}, "line 2: the id 1 was used in"),
        ({"id": "2", "task": "Cooking"}, 'line 2: "task" is "Cooking"'),
        ({"id": "2", "category": "State Augmentation"}, "jigsaw is of state reconstruction"),
        ({"id": "2", "input_images": ["none.png"]}, r"none\.png cannot be read"),
        ({"id": "2", "choice_b": None}, "expected at least two"),
        ({"id": "2", "question": " "}, '"question" is'),
    ],
)
def test_a_row_that_does_not_fit_is_named_with_its_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_folder(folder_with(tmp_path, ROW, {**ROW, **change}))


def test_where_the_data_are_missing_it_says_how_to_get_them(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match=r"yzzyu/UFO.*data.ufo=FOLDER"):
            Ufo(folder)


@pytest.mark.parametrize(
    ("reply", "letter"),
    [("B", "B"), ("(b) a cup", "B"), ("I think so. Answer: A", "A"), ("Caption: 2 cups", "A"), ("3 cups.", "B"),
     ("a dog", None), ("", None), ("D", None),
     # before an explanation
     *[(f"{mark}B{why}", "B")
       for mark in ("", "Answer: ", "**Answer:** ", "The answer is ", "The correct answer is option ", "Final answer ",
                    "A cup, I first thought. Answer: (")
       for why in ("", ".", ")", " because it fits.", ", because not A or C.", "\n\nExplanation: A is too small.",
                   " - it fits", ". The answer follows from the rule.", ") 3 cups", "\nSo A and C are no answer.",
                   " and A is too small.")],
     ("Answer: 3 cups\n\nThe answer is clear.", "B"), ("First A. No: the answer is B.", "B"),
     ("Answer: A because of this. But then the final answer is B.", "B"),
     # leaves open which
     *[(f"{mark}{reply}", None) for mark in ("", "Answer: ", "The answer is ")
       for reply in ("A or B", "A. or B.", "(A) or (B)", "A, B", "A/B", "A and B", "A or option B.",
                     "A) 2 cups or B) 3 cups", "a cup", "A cup is there", "an apple", "A-frame")]],
)  # fmt: skip
def test_a_choice_is_a_letter_or_the_words_of_one(reply: str, letter: str | None) -> None:
    assert replies.choice(reply, {"A": "2 cups", "B": "3 cups", "C": None}) == letter


def graded(score: int, *statuses: tuple[str, str]) -> dict[str, Any]:
    factors = [{"factor": "x", "criticality": kind, "status": status} for kind, status in statuses]
    return {"decision_critical_factors": factors, "scores": dict.fromkeys(rubric.DIMENSIONS, score)}


@pytest.mark.parametrize(
    ("statuses", "relevance", "utility"),
    [
        ([("critical", "verified")], 5, 5),
        ([("critical", "verified"), ("critical", "missing")], 3, 5),
        ([("critical", "contradicted")], 3, 2),
        ([("critical", "weak"), ("supporting", "verified")], 5, 2),
        ([], 5, 2),
    ],
)
def test_the_two_caps_of_the_rubric_are_kept(statuses: list[tuple[str, str]], relevance: int, utility: int) -> None:
    checks = {one.name: one.value for one in rubric.verdict_of(graded(5, *statuses)).checks}
    assert checks == {
        **dict.fromkeys(rubric.DIMENSIONS, 1.0),
        "relevance": relevance / 5,
        "causal_utility": utility / 5,
    }
    assert all(one.value == 0.2 for one in rubric.verdict_of(graded(1, *statuses)).checks)


def printed_regimes(kind: str) -> dict[str, dict[str, dict[str, float]]]:
    """Table 3 or 4: model -> schedule -> regime or "average" -> per cent."""
    rows = PAPER[f"Table {3 + KINDS.index(kind)}"]
    return {row["model"]: {schedule: {name: float(row[f"{name} {schedule}"]) for name in (*REGIMES, "average")}
                           for schedule in ANSWERS} for row in rows}  # fmt: skip


@pytest.mark.parametrize(("kind", "questions"), [("mcq", 1943), ("open", 1993)])
def test_the_printed_averages_of_tables_3_and_4_are_per_question(kind: str, questions: int) -> None:
    """Not the mean of regimes, nor of tasks: the denominators of Tables B, which add up to those of Table 2."""
    weights = counting.QUESTIONS[kind]
    assert sum(weights.values()) == questions
    off = {}
    for name, by_schedule in printed_regimes(kind).items():
        for schedule, cells in by_schedule.items():
            mean = sum(weights[one] * cells[one] for one in REGIMES) / questions
            if not name.startswith(("Gemini", "GPT")) and abs(mean - cells["average"]) > 0.02:
                off[name, schedule] = (round(mean, 2), cells["average"])
    assert off == ({("Ovis-U1 (2.4 + 1B)", "textual"): (27.08, 26.99)} if kind == "mcq" else {})


def test_where_its_averages_disagree_is_stated() -> None:
    regimes, weights = printed_regimes("open"), counting.QUESTIONS["open"]
    gaps = {model: max(sum(weights[one] * cells[one] for one in REGIMES) / 1993 - cells["average"]
                       for cells in by_schedule.values()) for model, by_schedule in regimes.items()}  # fmt: skip
    assert {model: round(gap, 1) for model, gap in gaps.items() if gap > 0.1} == {
        "Gemini-3.0-pro (-)": 3.7, "GPT-5 (-)": 5.4,
    }  # fmt: skip
    off = {row["model"]: round(mean_of([float(row[name]) for name in rubric.DIMENSIONS]) or 0, 2)
           for row in PAPER["Table 8"]}  # fmt: skip
    found = {row["model"]: off[row["model"]] for row in PAPER["Table 8"] if float(row["average"]) != off[row["model"]]}
    assert found == {"GPT-5 (-)": 3.18, "Bagel (7B MoT)": 2.37}


def test_the_average_is_no_mean_of_regimes_or_tasks() -> None:
    bagel = printed_regimes("mcq")["Bagel (7B MoT)"]["direct"]
    assert round(mean_of([bagel[one] for one in REGIMES]) or 0, 2) == 41.70 != bagel["average"]
    assert task_mean("mcq", "direct", "Bagel (7B MoT)") != pytest.approx(bagel["average"], abs=1)


def _printed(kind: str) -> Iterator[tuple[dict[str, str], dict[str, float]]]:
    """A model's row in Tables B and its regimes in Table 3 or 4."""
    for row in PAPER["Tables B"]:
        if row["kind"] == kind:
            yield row, printed_regimes(kind)[row["model"].replace("3B + 4B", "3B")][row["schedule"]]


@pytest.mark.parametrize("kind", KINDS)
def test_reconstruction_follows_from_its_tasks_and_the_halves_of_inpainting(kind: str) -> None:
    weights, checked = counting.RECONSTRUCTION_QUESTIONS[kind], 0
    assert sum(weights) == counting.QUESTIONS[kind]["reconstruction"]
    for row, regimes in _printed(kind):
        shares = [row[name] for name in ("inpainting a", "inpainting b", "exo_to_ego", "jigsaw")]
        if "" in shares:  # a cell that is not printed
            lacking = {("Ovis-U1 (2.4 + 1B)", "textual"), ("Janus-Pro (1B)", "joint")}
            assert (row["model"], row["schedule"]) in lacking
            continue
        mean = sum(weight * float(share) for weight, share in zip(weights, shares, strict=True)) / sum(weights)
        assert mean == pytest.approx(regimes["reconstruction"], abs=0.0051), row
        checked += 1
    assert checked == 43


def test_the_cells_that_table_4_lacks_follow_from_tables_b() -> None:
    """144, 82 and 61 open questions of geometry, logic and physics."""
    for name, schedule, right in (("Ovis-U1", "visual", 17 + 8 + 13), ("UniPic1", "joint", 5 + 2 + 3),
                                  ("Ovis-U1", "joint", 19 + 7 + 18)):  # fmt: skip
        (found,) = [pair for pair in _printed("open")
                    if pair[0]["model"].startswith(name) and pair[0]["schedule"] == schedule]  # fmt: skip
        row, regimes = found
        counts = [n * float(row[task]) / 100 for task, n in (("geometric", 144), ("logical", 82), ("physics", 61))]
        assert sum(map(round, counts)) == right
        assert regimes["augmentation"] == round(100 * right / 287, 2)


def test_halves_of_inpainting_are_columns() -> None:
    benchmark = Ufo(n=2, sets=("maths",))
    case = benchmark.cases()[0]
    halves = [replace(case, id=part, set="inpainting", facts={**case.facts, "part": part}) for part in ("a", "b")]
    right = Verdict((Check("answer", "pass"),))
    scored = [Scored(Sample(Ask(one, "direct", 0, 0)), right if one.id == "a" else None) for one in halves]
    benchmark.published = True
    tables = benchmark.tables(scored)
    assert all(all(one.columns) for one in tables)
    (table,) = [one for one in tables if "by task" in one.title]
    assert table.columns == ("Schedule", "inpainting A", "inpainting B")
    assert [cell.value for cell in table.rows[0][1:]] == [1.0, 0.0]  # type: ignore[union-attr]
    assert {row[0]: row[1:] for row in table.rows}["Bagel (7B MoT) in the paper, direct"] == ("0.3435", "0.4833")


def test_failure_modes_are_the_cause_of_a_cue_that_is_graded_low() -> None:
    benchmark = Ufo(n=1, sets=("maths",), extra=("dimensions",))
    sample = Sample(Ask(benchmark.cases()[0], "cue_dimensions", 0, 0))
    reply = graded(2, ("critical", "verified")) | {"failure_modes": ["generic_scene", "of the judge's own"]}
    scored = Scored(sample, rubric.verdict_of(reply), "judge")
    assert scored.verdict is not None and "generic_scene" in scored.verdict.reason
    assert benchmark.attribute(scored) == "generic scene"
    assert benchmark.attribute(replace(scored, verdict=rubric.verdict_of(graded(2)))) == "fail"


def test_a_cue_of_two_kinds_of_question_is_one_cluster() -> None:
    benchmark = Ufo(n=3, sets=("maths", "maths_open"))
    samples = [Sample(Ask(case, TEXT_CUE, 0, 0), thought="So draw 1 cup .") for case in benchmark.cases()]
    overall = benchmark.scores([Scored(one, benchmark.check(one)) for one in samples])[TEXT_CUE]["overall"]
    assert (overall["n"], overall["distinct"]) == (6, 3)


def test_state_augmentation_follows_from_its_tasks() -> None:
    """144, 81 and 60 questions of geometry, logic and physics give the printed regime of Bagel."""
    checked = 0
    for row, regimes in _printed("mcq"):
        if row["model"] == "Bagel (7B MoT)":
            sizes = (("geometric", 144), ("logical", 81), ("physics", 60))
            right = [round(n * float(row[task]) / 100) for task, n in sizes]
            assert 100 * sum(right) / 285 == pytest.approx(regimes["augmentation"], abs=0.36)
            checked += 1
    assert checked == len(ANSWERS)


def test_the_average_of_table_8_is_the_mean_of_five_within_rounding() -> None:
    for row in PAPER["Table 8"]:
        mean = sum(float(row[name]) for name in rubric.DIMENSIONS) / 5
        assert mean == pytest.approx(float(row["average"]), abs=0.0151)


def test_a_swap_without_a_cue_counts_nowhere(tmp_path: Path) -> None:
    """In scores as where evaluations are compared."""
    benchmark = Ufo(folder_with(tmp_path, ROW, {**ROW, "id": "2", "cue_image": None}), extra=("swap",))
    right = Verdict((Check("answer", "pass"),))
    asks = [Ask(case, "visual_true", 0, 0) for case in benchmark.cases()]
    scored = [Scored(Sample(asks[0]), right), Scored(Sample(asks[1], "cue_missing"))]
    (cell,) = {(unit.setting, unit.name) for unit in Ufo.units(scored, "")}
    assert cell == ("visual_true", asks[0].case.id) and counting.Count(scored).of("visual_true").mean().value == 1


def judge(asked: Asked) -> str:
    if "Role. You are a strict evaluator" in asked.words:
        return json.dumps(graded(5, ("critical", "missing")))
    return "It fits. <answer>Yes</answer>"


@pytest.mark.slow
def test_nano_is_asked_in_all_settings_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    benchmark = Ufo(n=2, extra=("blind", "dimensions", "swap"))
    with JudgeServer(judge) as server:
        plan = EvaluationPlan(
            checkpoint="shipped",
            benchmarks=[benchmark],
            config=EvalConfig(out=str(tmp_path), judge=JudgeConfig(model=f"{server.url}#judge")),
        )
        first = run(plan)
        asked = len(server.asked)
        again = run(plan)
        assert len(server.asked) == asked > 0
    assert all(prompts.RUBRICS in one.words for one in server.asked)  # all else is scored by program
    assert {one["made"] for one in again.calls.values()} == {0}
    assert again.results == first.results
    result = first.results["ufo"]
    assert not result.unjudged and result.n == len(benchmark.cases()) * len(benchmark.settings)
    assert result.scores["dimensions"]["relevance"]["value"] == pytest.approx(0.6)  # the judge said 5
    assert result.scores["dimensions"]["causal_utility"]["value"] == pytest.approx(0.4)
    assert set(result.scores[DIMENSIONS]) == {*benchmark.sets, "overall"}
    assert set(result.scores["swap"]["visual"]) == {"own", "true", "other", "blank"}
    titles = [table.title for table in result.tables]
    assert "Accuracy, multiple choice (Table 3)" in titles and "Whose cue it answers with" in titles
