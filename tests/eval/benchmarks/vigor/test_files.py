"""ViGoR-Bench: the published layout, probed; what is wrong with it is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uni_train.data_gen.errors import DataError
from uni_train.errors import UsageError
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.vigor import Vigor, programs
from uni_train.eval.benchmarks.vigor.files import Record, read_folder, write_folder
from uni_train.models.pictures import encode_png

PNG = encode_png(np.full((8, 8, 3), 200, np.uint8))


def put(folder: Path, task: str, rows: Any) -> Path:
    at = folder / task
    at.mkdir(parents=True, exist_ok=True)
    (at / "a.png").write_bytes(PNG)
    (at / "gt_4x4.png").write_bytes(PNG)
    (at / "records.json").write_text(json.dumps(rows))
    return folder


def test_fields_are_probed_and_reported(tmp_path: Path) -> None:
    put(tmp_path, "Sudoku", [{"Input-Image": "a.png", "prompt": "Fill.", "GT_image": "gt_4x4.png", "grid_size": "4×4"}])
    put(
        tmp_path,
        "Physical_Reasoning/Sorting_and_Categorization",
        [{"id": 7, "image": "Sorting_and_Categorization/a.png", "instruction": "Sort.", "answer": "2"}],
    )
    found = read_folder(tmp_path)
    sorting, sudoku = found.records
    assert (sorting.id, sorting.answer, sorting.answer_image, sorting.size) == (
        "sorting_and_categorization/7",
        "2",
        None,
        "",
    )
    assert (sudoku.id, sudoku.instruction, sudoku.size, sudoku.image) == ("sudoku/0", "Fill.", "4x4", PNG)
    assert found.fields["sudoku"] == {
        "image": ("Input-Image",), "instruction": ("prompt",), "answer_image": ("GT_image",), "size": ("grid_size",),
    }  # fmt: skip
    benchmark = Vigor(Source(data=tmp_path))
    assert benchmark.sets == ("sorting_and_categorization", "sudoku") and benchmark.yours
    assert benchmark.tables([])[-1].rows[0][0] == "Sorting and categorization"
    assert benchmark.revision != Vigor(Source(data=tmp_path, sets=("sudoku",))).revision


GOOD = {"image": "a.png", "instruction": "Fill."}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({}, "must be an array"),
        ([], "not an empty one"),
        ([GOOD, 3], "record 1 must be an object"),
        (
            [{**GOOD, "hint": "x"}],
            "record 0: unknown field 'hint'. Say what it is for: options.vigor.fields=hint=ROLE",
        ),
        ([{"image": "a.png"}], "record 0: no instruction"),
        ([{"instruction": "Fill."}], "record 0: no input image"),
        ([{**GOOD, "prompt": "Empty."}], "'instruction' and 'prompt' both give its instruction, and differ"),
        ([{**GOOD, "image": "b.png"}], "its input image is not there"),
        ([{**GOOD, "image": "../../secret.png"}], "its input image is not there"),
        ([{**GOOD, "image": "records.json"}], "no image that can be read"),
        ([{**GOOD, "gt_image": "a.mp4"}], "its answer image is the video a.mp4: take its frames"),
        ([{**GOOD, "image": ["a.png", "a.png"]}], "must be one file name"),
        ([{**GOOD, "size": "large"}], "its size must read like 4 or 4x4"),
        ([{**GOOD, "id": 1}, {**GOOD, "id": 1}], "record 1 has the id 'sudoku/1' of record 0"),
        ([{**GOOD, "item": {"id": 3}}], "its item is none of data_gen"),
    ],
)
def test_what_is_wrong_names_file_and_record(rows: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(PNG)
    folder = put(tmp_path / "a" / "b", "Sudoku", rows)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        read_folder(folder)
    assert "records.json" in str(caught.value)


def test_absent_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not shipped .*VincentHancoder/ViGoR-Bench"):
        read_folder(tmp_path / "none")
    with pytest.raises(DataError, match="one folder a task"):
        read_folder(tmp_path)
    put(tmp_path, "Origami", [GOOD])
    with pytest.raises(DataError, match=r"Origami.*no such task"):
        read_folder(tmp_path)


def test_a_field_gets_its_role(tmp_path: Path) -> None:
    put(tmp_path, "Sudoku", [{**GOOD, "hint": "easy"}])
    assert read_folder(tmp_path, fields=["hint=answer"]).records[0].answer == "easy"
    with pytest.raises(UsageError, match="no NAME=ROLE"):
        read_folder(tmp_path, fields=["hint=role"])
    with pytest.raises(DataError, match="no folder of biology"):
        read_folder(tmp_path, ["biology"])


def test_records_of_our_own_survive_the_layout(tmp_path: Path) -> None:
    own = [
        *programs.own_records("nano", 3, "test", 0, None),
        *programs.own_records("nano", 2, "test", 0, ["maze_navigation"]),
    ]
    write_folder(tmp_path, [(record, None) for record in own])
    assert sorted(read_folder(tmp_path).records, key=lambda one: one.id) == sorted(own, key=lambda one: one.id)


def test_a_published_maze_is_read_where_its_answer_proves_it(tmp_path: Path) -> None:
    record = programs.own_records("everyday", 2, "test", 1, None)[1]
    assert record.item is not None
    answer = tmp_path / "answer.png"

    def published(image: bytes) -> Record:
        answer.write_bytes(image)
        return Record("maze_navigation/0", record.task, record.instruction, record.image, "", answer)

    read = programs.read_maze(published(programs.answer_image(record.item)))
    assert read is not None and read.facts["maze"] == record.item.facts["maze"]
    assert record.image is not None and programs.read_maze(published(record.image)) is None  # no path, no proof
