"""UFO: the loader, replies, the rubric's caps and what is counted; more of it in ../test_benchmarks.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.eval.benchmarks.doubles import Model, checked
from tests.eval.benchmarks.published import PNG, row, write
from uni_train.core.errors import UserError
from uni_train.data_gen.published_rows import column_of
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Sample, Scored, Source
from uni_train.eval.benchmarks.ufo import Ufo, counting, rubric
from uni_train.eval.benchmarks.ufo.cases import read_folder
from uni_train.eval.generation import asks_of
from uni_train.eval.images import bytes_of
from uni_train.models.pictures import encode_png

RIGHT = Verdict((Check("answer", "pass"),))


def test_choices_may_be_images_and_open_questions_have_none(tmp_path: Path) -> None:
    write(tmp_path, "ufo", row("ufo"))
    write(tmp_path, "ufo", row("ufo", task="Inpainting_A", answer="Triangle", cue_image=None), file="open.jsonl")
    mcq, open_ = read_folder(tmp_path)
    assert (mcq.set, mcq.facts["answer"], mcq.images) == ("jigsaw", "B", (PNG, PNG, PNG))
    assert (mcq.facts["choices"], mcq.facts["choice_images"]) == ({"A": None, "B": None}, {"A": 1, "B": 2})
    assert (open_.set, open_.facts["part"], open_.facts["choices"]) == ("inpainting_open", "a", {})
    assert open_.references == () and Ufo(Source(data=tmp_path)).sets == ("jigsaw", "inpainting_open")


def test_parquet_with_bytes_reads_as_json_lines_do(tmp_path: Path) -> None:
    image = {"bytes": PNG, "path": None}
    shown = row("ufo", input_images=[image], choice_a=image, choice_b=image, cue_image=image)
    (tmp_path / "data").mkdir()
    parquet.write_table(pa.Table.from_pylist([shown]), tmp_path / "data" / "mcq-00000-of-00001.parquet")
    assert read_folder(tmp_path) == read_folder(write(tmp_path / "lines", "ufo", row("ufo")))


def test_images_in_parquet_are_read_again_from_their_batch(tmp_path: Path) -> None:
    def image(number: int) -> dict[str, Any]:
        return {"bytes": encode_png(np.full((4, 4, 3), number, np.uint8)), "path": None}

    rows = [
        row("ufo", id=str(i), input_images=[image(i), image(i + 100)], choice_a="x", choice_b="y",
            cue_image=image(200) if i % 2 else None)
        for i in range(90)
    ]  # fmt: skip
    file = tmp_path / "mcq.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=70)
    found = read_folder(tmp_path)
    for place in (0, 31, 32, 69, 70, 89):
        one = found[place]
        assert not any(isinstance(shown, bytes) for shown in one.images)
        assert [bytes_of(shown) for shown in one.images] == [image(place)["bytes"], image(place + 100)["bytes"]]
        assert bool(one.references) == (place % 2 == 1)
    column_of.cache_clear()
    parquet.write_table(pa.Table.from_pylist(rows[::-1]), file, row_group_size=70)
    with pytest.raises(UserError, match="has changed since it was opened"):
        bytes_of(found[0].images[0])
    column_of.cache_clear()
    file.unlink()
    with pytest.raises(UserError, match="cannot be read again"):
        bytes_of(found[0].images[0])


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
    capped = {"relevance": relevance / 5, "causal_utility": utility / 5}
    assert checks == dict.fromkeys(rubric.DIMENSIONS, 1.0) | capped
    assert all(one.value == 0.2 for one in rubric.verdict_of(graded(1, *statuses)).checks)


def test_halves_of_inpainting_are_columns() -> None:
    benchmark = Ufo(Source(n=2, sets=("maths",)))
    case = benchmark.cases()[0]
    halves = [replace(case, id=part, set="inpainting", facts={**case.facts, "part": part}) for part in ("a", "b")]
    scored = [Scored(Sample(Ask(one, "direct", 0, 0)), RIGHT if one.id == "a" else None) for one in halves]
    benchmark.published = True
    (table,) = [one for one in benchmark.tables(scored) if "by task" in one.title]
    assert all(table.columns)
    assert table.columns == ("Schedule", "inpainting A", "inpainting B")
    assert [cell.value for cell in table.rows[0][1:]] == [1.0, 0.0]  # type: ignore[union-attr]
    assert {row[0]: row[1:] for row in table.rows}["Bagel (7B MoT) in the paper, direct"] == ("0.3435", "0.4833")


def test_failure_modes_are_the_cause_of_a_cue_that_is_graded_low() -> None:
    benchmark = Ufo(Source(n=1, sets=("maths",)), extra=("dimensions",))
    sample = Sample(Ask(benchmark.cases()[0], "cue_dimensions", 0, 0))
    reply = graded(2, ("critical", "verified")) | {"failure_modes": ["generic_scene", "of the judge's own"]}
    scored = Scored(sample, rubric.verdict_of(reply), "judge")
    assert benchmark.attribute(scored) == "generic scene"
    assert benchmark.attribute(replace(scored, verdict=rubric.verdict_of(graded(2)))) == "fail"


def test_each_schedule_answers_with_its_own_cues_alone() -> None:
    """Also where a chunk of calls holds several."""
    benchmark = Ufo(Source(n=1, sets=("maths",)), extra=("blind",))
    model = Model(think="So draw 3 apples .", draw=np.zeros((24, 24, 3), np.uint8), answer="3 apples")
    settings = ("direct", "textual", "visual", "joint", "blind")
    benchmark.respond(model, asks_of(benchmark.cases(), settings))
    answers = [request for skill, request in model.asked if skill == "answer"]
    cues = [("So draw" in request.prompt, len(request.images)) for request in answers]
    assert cues == [(False, 0), (True, 0), (False, 1), (True, 1), (False, 0)]
    assert [skill for skill, _ in model.asked[:2]] == ["think", "draw"]  # made once for all schedules


def test_an_interleaved_answer_is_its_last_text(tmp_path: Path) -> None:
    write(tmp_path, "ufo", row("ufo", task="Inpainting_A", answer="Triangle"), file="open.jsonl")
    benchmark = Ufo(Source(data=write(tmp_path, "ufo", row("ufo"))), extra=("interleaved",))
    asks = asks_of(benchmark.cases(), ("direct", "interleaved"))
    assert benchmark.calls(asks) == {"think": 0, "draw": 0, "answer": 2, "compose": 2, "judge": 2}
    drawn = np.zeros((24, 24, 3), np.uint8)

    def scored(*parts: Any) -> list[Scored]:
        model = Model(answer="A", compose=parts)
        samples = [one for one in benchmark.respond(model, asks) if one.ask.setting == "interleaved"]
        assert [len(request.images) for skill, request in model.asked if skill == "compose"] == [3, 1]
        return checked(benchmark, samples)

    said = scored("A <image_start>", drawn, "<answer>B</answer>"), scored("Square", drawn, "Triangle")
    assert (said[0][0].outcome, said[1][1].outcome, said[0][0].sample.text) == (
        "pass",
        "pass",
        "A <image_start>\n<answer>B</answer>",
    )
    assert {one.sample.status for parts in ([drawn], ["B", drawn]) for one in scored(*parts)} == {"not_extracted"}
    (table,) = [one for one in benchmark.tables(said[0]) if "multiple choice (Table 3)" in one.title]
    assert [cells[0] for cells in table.rows] == ["interleaved"]


def test_a_swap_without_a_cue_counts_nowhere(tmp_path: Path) -> None:
    """In scores as where evaluations are compared."""
    benchmark = Ufo(
        Source(data=write(tmp_path, "ufo", row("ufo"), row("ufo", id="2", cue_image=None))), extra=("swap",)
    )
    asks = [Ask(case, "visual_true", 0, 0) for case in benchmark.cases()]
    scored = [Scored(Sample(asks[0]), RIGHT), Scored(Sample(asks[1], "cue_missing"))]
    (cell,) = {(unit.setting, unit.name) for unit in Ufo.units(scored, "")}
    assert (
        cell == ("visual_true", asks[0].case.id)
        and counting.Count(counting.units(scored)).results("visual_true").mean().value == 1
    )
