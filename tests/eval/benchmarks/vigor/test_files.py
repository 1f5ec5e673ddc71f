"""ViGoR-Bench: the published layout, probed. What is wrong with it: ../test_benchmarks.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eval.benchmarks.published import PNG, row, write
from uni_train.data_gen.errors import DataError
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.vigor import Vigor, programs
from uni_train.eval.benchmarks.vigor.files import Record, read_folder, write_folder


def test_fields_are_probed_and_reported(tmp_path: Path) -> None:
    grid = {"Input-Image": "a.png", "prompt": "Fill.", "GT_image": "b.png", "grid_size": "4×4"}
    write(tmp_path, "vigor", grid)
    place = "Sorting_and_Categorization"
    sort = {"id": 7, "image": f"{place}/a.png", "instruction": "Sort.", "answer": "2"}
    write(tmp_path, "vigor", sort, file=f"Physical_Reasoning/{place}/records.json")
    found = read_folder(tmp_path)
    sorting, sudoku = found.records
    assert (sorting.id, sorting.answer) == ("sorting_and_categorization/7", "2")
    assert sorting.answer_image is None and sorting.size == ""
    assert (sudoku.id, sudoku.instruction, sudoku.size, sudoku.image) == ("sudoku/0", "Fill.", "4x4", PNG)
    assert found.fields["sudoku"] == {
        "image": ("Input-Image",), "instruction": ("prompt",), "answer_image": ("GT_image",), "size": ("grid_size",),
    }  # fmt: skip
    benchmark = Vigor(Source(data=tmp_path))
    assert benchmark.sets == ("sorting_and_categorization", "sudoku") and benchmark.yours
    assert benchmark.tables([])[-1].rows[0][0] == "Sorting and categorization"
    write(tmp_path, "vigor", row("vigor", hint="easy"))
    assert read_folder(tmp_path, fields=["hint=answer"]).records[1].answer == "easy"
    write(tmp_path, "vigor", row("vigor"), file="Origami/records.json")
    with pytest.raises(DataError, match=r"Origami.*no such task"):
        read_folder(tmp_path)
    (tmp_path / "Origami" / "records.json").unlink()
    for rows, said in (("{}", "must be an array"), ("[]", "not an empty one")):
        (tmp_path / "Sudoku" / "records.json").write_text(rows)
        with pytest.raises(DataError, match=rf"records\.json.*{said}"):
            read_folder(tmp_path)


def test_records_of_our_own_survive_the_layout(tmp_path: Path) -> None:
    mazes = programs.own_records("nano", 2, "test", 0, ["maze_navigation"])
    own = [*programs.own_records("nano", 3, "test", 0, None), *mazes]
    write_folder(tmp_path, [(record, None) for record in own])
    assert sorted(read_folder(tmp_path).records, key=lambda one: one.id) == sorted(own, key=lambda one: one.id)


def test_a_published_maze_is_read_where_its_answer_proves_it(tmp_path: Path) -> None:
    record = programs.own_records("everyday", 2, "test", 1, None)[1]
    assert record.item is not None and record.image is not None
    answer = tmp_path / "answer.png"
    published = Record("maze_navigation/0", record.task, record.instruction, record.image, "", answer)
    answer.write_bytes(programs.answer_image(record.item))
    read = programs.read_maze(published)
    assert read is not None and read.facts["maze"] == record.item.facts["maze"]
    answer.write_bytes(record.image)  # type: ignore[arg-type]
    assert programs.read_maze(published) is None  # no path, no proof
