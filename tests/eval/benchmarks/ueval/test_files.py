"""The published files: both schemas, JSON lines and Parquet, and what is wrong with a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uni_train.data_gen.errors import DataError
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.ueval.files import read_folder


def row(**changes: Any) -> dict[str, Any]:
    given = {
        "id": 7, "task": "Space", "prompt": "Why can people stand on it?", "image_rubrics": ["It shows the crown."],
        "text_rubrics": ["It names the stairs.", "It names the year."], "image_ref": ["a.png"],
        "text_ref": "By stairs.",
    }  # fmt: skip
    return {key: value for key, value in {**given, **changes}.items() if value is not ...}


def write(folder: Path, *rows: Any, name: str = "test.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return folder


def test_both_schemas_ask_the_same(tmp_path: Path) -> None:
    new = read_folder(write(tmp_path / "new", row(), row(id=8, task="art")))
    older = row(
        task=...,
        task_type="space",
        question_type="closed",
        image_rubrics=[{"criterion": "It shows the crown.", "n": 1}],
    )
    assert read_folder(write(tmp_path / "old", older))[0] == new[0]
    assert [(case.id, case.set, case.category) for case in new] == [
        ("7", "space", "closed-ended"), ("8", "art", "open-ended"),
    ]  # fmt: skip
    assert new[0].facts["text_rubrics"] == ["It names the stairs.", "It names the year."]


def test_parquet_is_read_without_its_images_and_only_of_the_test_split(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = [row(id="a", image_ref=[{"bytes": b"\x89PNG", "path": "a.png"}]), row(id="b", task="tech")]
    table = {name: [one[name] for one in rows] for name in rows[0] if name != "image_ref"}
    pq.write_table(
        pa.table({**table, "image_ref": [[b"x" * 100], []]}), tmp_path / "data" / "test-00000-of-00001.parquet"
    )
    write(tmp_path, row(id="c"), name="train.jsonl")
    assert [case.id for case in read_folder(tmp_path)] == ["a", "b"]
    assert [case.id for case in UEval(tmp_path, sets=("tech",)).cases()] == ["b"]
    pq.write_table(pa.table({**table, "prompt": ["x", ""]}), tmp_path / "data" / "test-00000-of-00001.parquet")
    with pytest.raises(DataError, match=r'00001\.parquet, row 2: "prompt" is ""'):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(prompt=...), 'line 2: no "prompt"; its keys are id, task'),
        (row(task="cooking"), 'there is no task "cooking"; known: space'),
        (row(task="spce"), 'there is no task "spce"; did you mean "space"'),
        (row(id=None), 'line 2: "id" is null'),
        (row(image_rubrics="It shows it."), '"image_rubrics" is "It shows it."; expected a list'),
        (row(text_rubrics=["fine", 3]), 'number 2 of "text_rubrics" is 3'),
        (row(text_rubrics=[{"weight": 1}]), "an object with one of rubric, criterion"),
        (row(text_rubrics=...), 'no "text_rubrics"'),
        (row(text_rubrics=[], image_rubrics=[]), "no rubrics at all"),
        (row(id="first"), r"the id first was used in .*test\.jsonl, line 1"),
        ("{half", "line 2: not JSON"),
        ("[1]", "line 2: a list"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, bad: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        read_folder(write(tmp_path, row(id="first"), bad))
    assert "test.jsonl, line 2" in str(error.value)


def test_absent_data_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DataError, match=r"data.ueval=hf://zlab-princeton/UEval"):
            UEval(folder)
    (tmp_path / "test.parquet").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataError, match="pointer of Git LFS"):
        UEval(tmp_path)
    (tmp_path / "test.parquet").unlink()
    with pytest.raises(DataError, match="has no questions of art: it has space"):
        UEval(write(tmp_path, row()), sets=("art",))
