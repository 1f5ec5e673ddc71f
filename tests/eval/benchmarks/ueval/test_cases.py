"""The published files: both schemas, JSON lines and Parquet. What is wrong with them: ../test_benchmarks.py."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.eval.benchmarks.published import row, write
from uni_train.core.errors import DataError
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.ueval.cases import read_folder


def test_both_schemas_ask_the_same(tmp_path: Path) -> None:
    new = read_folder(write(tmp_path / "new", "ueval", row("ueval"), row("ueval", id=8, task="art")))
    rubrics = [{"criterion": "It shows the crown.", "n": 1}]
    older = row("ueval", task=..., task_type="space", question_type="closed", image_rubrics=rubrics)
    assert read_folder(write(tmp_path / "old", "ueval", older))[0] == new[0]
    assert [(case.id, case.set, case.category) for case in new] == [
        ("7", "space", "closed-ended"), ("8", "art", "open-ended"),
    ]  # fmt: skip
    assert new[0].facts["text_rubrics"] == ["It names the stairs.", "It names the year."]


def test_parquet_is_read_without_its_images_and_only_of_the_test_split(tmp_path: Path) -> None:
    file = tmp_path / "data" / "test-00000-of-00001.parquet"
    file.parent.mkdir()
    rows = [row("ueval", id="a", image_ref=...), row("ueval", id="b", task="tech", image_ref=...)]
    table = {name: [one[name] for one in rows] for name in rows[0]}
    pq.write_table(pa.table({**table, "image_ref": [[b"x" * 100], []]}), file)
    write(tmp_path, "ueval", row("ueval", id="c"), file="train.jsonl")
    assert [case.id for case in read_folder(tmp_path)] == ["a", "b"]
    assert [case.id for case in UEval(Source(data=tmp_path, sets=("tech",))).cases()] == ["b"]
    pq.write_table(pa.table({**table, "prompt": ["x", ""]}), file)
    with pytest.raises(DataError, match=r'00001\.parquet, row 2: "prompt" is ""'):
        read_folder(tmp_path)
    file.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataError, match="pointer of Git LFS"):
        read_folder(tmp_path)
