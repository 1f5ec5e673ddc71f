"""Which files of a folder are trained on: splits as the datasets library names them, kinds, links, what is left."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.training.data.test_forms import png
from tests.training.data.test_own_data import write
from uni_train.core import reading_limits
from uni_train.core.errors import UserError
from uni_train.training.data.rows import open_rows

README = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/a*
  - split: challenge
    path: [data/b.jsonl]
- config_name: other
  data_files: data/c.jsonl
---
"""
SPLITS = [
    (["train.jsonl", "test.jsonl"], {"train.jsonl"}),
    (["training.jsonl", "dev.jsonl", "evaluation.csv"], {"training.jsonl"}),
    (["my-train_set.jsonl", "my-val_set.jsonl", "extra.jsonl"], {"my-train_set.jsonl"}),
    (["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/test-00000-of-00001.jsonl"],
     {"data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl"}),
    (["data/train-00000-of-00001.jsonl", "data/challenge-00000-of-00001.jsonl"], {"data/train-00000-of-00001.jsonl"}),
    (["data/shard-00000-of-00002.jsonl", "data/shard-00001-of-00002.jsonl"],
     {"data/shard-00000-of-00002.jsonl", "data/shard-00001-of-00002.jsonl"}),
    *((["train/metadata.jsonl", f"{held}/metadata.jsonl"], {"train/metadata.jsonl"})
      for held in ("test", "validation", "valid", "dev", "val", "eval", "Test", "val2017")),
    (["rows.jsonl", "test/rows.jsonl"], {"rows.jsonl"}),
    (["train/test_1.jsonl", "valid/train.jsonl"], {"train/test_1.jsonl"}),
    (["train.jsonl", "more.jsonl"], {"train.jsonl", "more.jsonl"}),
    (["latest.jsonl", "contest.jsonl", "devices.csv"], {"latest.jsonl", "contest.jsonl", "devices.csv"}),
    (["README.md", "data/a1.jsonl", "data/a2.jsonl", "data/b.jsonl", "data/c.jsonl", "d.jsonl"],
     {"data/a1.jsonl", "data/a2.jsonl"}),
]  # fmt: skip


@pytest.mark.parametrize(("files", "trained"), SPLITS, ids=[" ".join(files) for files, _ in SPLITS])
def test_the_training_split_alone_is_read_and_the_others_are_said(
    tmp_path: Path, files: list[str], trained: set[str]
) -> None:
    for name in files:
        write(
            tmp_path, **{name: README if name == "README.md" else "text\na\n" if name.endswith("csv") else '{"a": 1}'}
        )
    rows = open_rows(str(tmp_path))
    assert {file.relative_to(tmp_path).as_posix() for file in rows.files} == trained and len(rows) == len(trained)
    others = {*files} - trained - {"README.md"}
    assert len(rows.remarks) == bool(others) + any("extra" in name for name in files)
    if others:
        assert "left out: " in rows.remarks[0]
    for name in others:  # what is named itself is read
        assert len(open_rows(str(tmp_path / name))) == 1


def test_images_have_the_split_of_their_folder_and_not_of_their_names(tmp_path: Path) -> None:
    names = ("a", "train", "crash test 1", "val/b", "val/c")
    write(tmp_path, **{f"{name}.png": png(1) for name in names}, **{f"{name}.txt": "x" for name in names})
    rows = open_rows(str(tmp_path))
    assert [rows.where(i) for i in range(len(rows))] == [str(tmp_path / f"{n}.png") for n in sorted(names[:3])]
    offer = f"held_out.path={tmp_path} draws prompts of it"
    assert rows.remarks == [f"{tmp_path}: split none; left out: validation (val/b.png and 1 more); {offer}"]
    held = open_rows(str(tmp_path), held_out=True)
    assert [held.where(i) for i in range(len(held))] == [str(tmp_path / f"{name}.png") for name in names[3:]]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"test.jsonl": "{}"}, "has no training split, only test .test.jsonl.\nA file .* is named"),
        ({"val/a.png": png(1), "val/a.txt": "x"}, "has no training split, only validation"),
        (
            {"README.md": "---\nconfigs: [\n---\n", "a.jsonl": "{}"},
            "README.md, line .*not valid YAML.*\nCorrect README",
        ),
    ],
)
def test_a_folder_without_a_training_split_is_refused(
    tmp_path: Path, files: dict[str, str | bytes], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        open_rows(str(write(tmp_path, **files)))


def test_linked_folders_are_read_once_and_links_to_nothing_are_said(tmp_path: Path) -> None:
    write(tmp_path, **{"other/b.jsonl": '{"a": 1}', "data/a.jsonl": '{"a": 1}'})
    for name in ("first", "second"):
        (tmp_path / "data" / name).symlink_to(tmp_path / "other")
    (tmp_path / "data" / "gone.jsonl").symlink_to(tmp_path / "nothing")
    rows = open_rows(str(tmp_path / "data"))
    assert rows.files == [tmp_path / "data" / "a.jsonl", tmp_path / "data" / "first" / "b.jsonl"]
    assert f"links to nothing, or closed folders: 1, the first {tmp_path / 'data' / 'gone.jsonl'}" in rows.remarks[0]


def test_a_snapshot_of_the_hub_is_read_through_its_links(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0a1b"
    write(blobs, one=png(1), two=json.dumps({"file_name": "a.png", "text": "x"}))
    snapshot.mkdir(parents=True)
    for name, blob in {"a.png": "one", "metadata.jsonl": "two"}.items():
        (snapshot / name).symlink_to(blobs / blob)
    rows = open_rows(str(snapshot))
    assert rows.files == [snapshot / "metadata.jsonl"] and (rows[0].folder / rows[0].get("file_name")).is_file()


def test_what_is_not_read_is_counted_by_kind(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    write(tmp_path, **{"b.json": "[]", "c.json": "[]", "more/d.ZIP": "PK", "e.png": png(1), "b.jsonl": "{}"})
    assert open_rows(str(tmp_path)).remarks == [f"{tmp_path}: not read: 2 .json, 1 .jsonl, 1 .zip"]


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"{}\n" * 9)[:-9], b"{}", gzip.compress(b"{}\n" * 40)],
    ids=["cut off", "not packed", "too large"],
)
def test_what_cannot_be_unpacked_within_the_limit_is_refused(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_limits.read_unpacked, "__defaults__", (100,))
    with pytest.raises(
        (UserError, reading_limits.Unreadable), match=r"a.jsonl.gz: (it cannot be unpacked|unpacked it)"
    ):
        open_rows(str(write(tmp_path, **{"a.jsonl.gz": data}) / "a.jsonl.gz"))
