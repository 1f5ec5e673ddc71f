"""ViGoR-Bench: the published layout, probed. What is wrong with it: ../test_benchmarks.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.eval.benchmarks.published import PNG, row, write, write_vigor
from uni_train.core.errors import DataError
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.vigor import Vigor
from uni_train.eval.benchmarks.vigor.cases import generated, make_case, read_folder
from uni_train.eval.benchmarks.vigor.programs import read_maze


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
