"""Kinds of files that rows come from: places of rows in them, what is read of each, and what is damaged."""

from __future__ import annotations

import csv
import io
import json
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.core.test_hub import SHA, Hub, hub  # noqa: F401
from tests.training.data.test_forms import png
from tests.training.data.test_own_data import examples, write
from uni_train.core.errors import UserError
from uni_train.data_gen.export import make
from uni_train.training.data import items, spans
from uni_train.training.data.rows import BadRow, RowFile, Rows, missing, open_rows


def values(rows: RowFile) -> list[Mapping[str, Any] | str]:
    """Of each row its values, or why it is bad."""
    found: list[Mapping[str, Any] | str] = []
    for index in range(len(rows)):
        try:
            found.append(dict(rows[index].values))
        except BadRow as error:
            found.append(str(error))
    return found


# --- text -------------------------------------------------------------------------------------------------------------

PIECES = ["a", ",", '"', '"', "\n", "\r\n", " ", "é", "\r", '""', '"a"', '"a\nb"', '"a\n,""b"', "\n\n"]


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_csv_is_read_as_csv_reads_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Where quotes are within fields, lines end in CR, and pieces of the file end anywhere. A row of several lines that
    breaks a rule of quotes is bad, for a quote may be missing."""
    monkeypatch.setattr(spans, "BLOCK", block)
    random_, file, counts = random.Random(block), tmp_path / "x.csv", [0, 0, 0]
    for _ in range(300):
        text = "".join(random_.choices(PIECES, k=random_.randrange(20)))
        file.write_bytes(f"{random_.choice(['', '﻿'])}h,k\n{text}".encode())
        reader = csv.DictReader(io.StringIO(f"h,k\n{text}", newline=""))
        whole = [(f"{file}, line {reader.line_num}", row) for row in reader]
        try:
            rows = open_rows(str(file))
        except UserError as error:
            assert not whole or "not closed" in error.message
            counts[0] += 1
            continue
        assert [rows.where(i) for i in range(len(rows))] == [where for where, _ in whole]
        for (_, expected), now in zip(whole, values(rows), strict=True):
            if isinstance(now, str):
                assert None in expected or ("is not CSV" in now and "\n" in text)
                counts[1] += 1
            else:
                assert now == {key: None if missing(cell, cell=True) else cell for key, cell in expected.items()}
                counts[2] += 1
    assert min(counts) > 20


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("block", [1, 5, 1 << 20])
def test_elements_of_an_array_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, indent: int | None
) -> None:
    monkeypatch.setattr("uni_train.training.data.files.json.BLOCK", block)
    rows: list[Any] = [{"a": 'x\\"]},{[\\'}, {"é\\": [1, {"b": ["]"]}], "c": {}}, [1, {}], "no, row", 3, None, {}]
    file = tmp_path / "rows.json"
    for ascii_ in (True, False):
        file.write_text("\ufeff " + json.dumps(rows, indent=indent, ensure_ascii=ascii_) + " \n", encoding="utf-8")
        read = open_rows(str(file))
        assert values(read) == [row if isinstance(row, dict) else "is not a JSON object" for row in rows]
        assert read.where(2) == f"{file}, row 3"
    file.write_text('[{"a": 1}, {"b" 2}, {"c": 3},]')
    bad = values(open_rows(str(file)))
    assert bad[0] == {"a": 1} and bad[2] == {"c": 3} and "is not a JSON object" in bad[1] and "line 1" in bad[3]


def test_lines_are_those_that_are_not_blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "BLOCK", 3)
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'\n{"a": 1}\n \x0b\r\n  {"a": 2}\r\n\n\n{\n{"a": 3}')
    rows = open_rows(str(file))
    assert [rows.where(i)[-1] for i in range(len(rows))] == ["2", "4", "7", "8"]
    assert [*map(str, values(rows))][::3] == ["{'a': 1}", "{'a': 3}"] and "line 7" in str(values(rows)[2])


# --- Parquet ----------------------------------------------------------------------------------------------------------


def test_a_file_with_a_large_row_group_is_copied_once_and_read_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("uni_train.training.data.files.parquet.LARGE_ROWS", 1_500)
    file, images = tmp_path / "x.parquet", [{"bytes": bytes([i % 256]) * 900, "path": None} for i in range(4_000)]
    table = pa.table({"text": [f"é{i % 7}" for i in range(4_000)], "image": images, "list": [[[1], []]] * 4_000,
                      "none": pa.nulls(4_000, pa.string())})  # fmt: skip
    pq.write_table(table, file, row_group_size=2_000)
    expected = table.to_pylist()
    drawn = [0, 1_999, 2_000, 3_999, 777]

    def draw() -> str:
        rows = open_rows(str(file))
        assert [dict(rows[i].values) for i in drawn] == [expected[i] for i in drawn]
        assert rows.where(3_999) == f"{file}, row 4000"
        return capfd.readouterr().err

    assert draw() == ""  # without a cache, as it is
    monkeypatch.setenv("UNI_TRAIN_CACHE", str(tmp_path / "cache"))
    message = draw()
    (copy,) = (tmp_path / "cache/rows").glob("*.parquet")
    assert f"{file} has large row groups: " in message and str(copy) in message
    assert pq.read_metadata(copy).num_row_groups >= 4 and draw() == ""
    expected[5] = {**expected[5], "text": "new"}
    pq.write_table(pa.Table.from_pylist(expected, table.schema), file, row_group_size=2_000)
    drawn.append(5)
    assert draw() != "" and len([*(tmp_path / "cache/rows").glob("*.parquet")]) == 2


# --- WebDataset -------------------------------------------------------------------------------------------------------


def tar(file: Path, **members: bytes | str) -> Path:
    """Members by their names, with __ for a slash."""
    with tarfile.open(file, "w") as archive:
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file


def test_members_of_one_stem_are_a_sample(tmp_path: Path) -> None:
    """Also where they are not neighbours, in folders and in capital letters."""
    tar(tmp_path / "a.tar", **{
        ".__x__a.PNG": png(1), "x__b.jpg": png(2), "x__b.txt": "two\n", ".__x__a.json": '{"text": "one", "id": 3}',
        "._x": "mac", "x__b.npy": b"no",
    })  # fmt: skip
    assert examples(tmp_path) == [("one", "1"), ("two", "2")]
    rows = open_rows(str(tmp_path / "a.tar"))
    assert rows.where(1) == f"{tmp_path}/a.tar, sample x/b" and rows.remarks == [f"{tmp_path}/a.tar: not read: 1 .npy"]
    edit = tar(tmp_path / "e.tar", **{"a.source_image.png": png(1), "a.jpg": png(2), "a.instruction.txt": "bend"})
    assert sorted(open_rows(str(edit))[0].values) == ["image", "instruction", "source_image"]


def test_what_data_make_writes_is_read_as_its_folder_is(tmp_path: Path) -> None:
    drawn = {}
    for form in ("folder", "webdataset"):
        make("maze", 3, 3, "train", 0, "nano", tmp_path / form, False, form)
        rows = Rows(open_rows(str(tmp_path / form)), items.parser(["thought", "image"]), "error", lambda _: 1, 1)
        drawn[form] = [rows.draw(index, random.Random(0)) for index in range(3)]
    for folder, shard in zip(*drawn.values(), strict=True):
        assert (folder.prompt, folder.thought) == (shard.prompt, shard.thought)
        assert (folder.target == shard.target).all() and (folder.images[0] == shard.images[0]).all()


GOOD = {"a.png": png(1), "a.txt": "one", "b.png": png(2), "b.txt": "two"}
TARS = [
    (GOOD | {"a.jpg": png(2)}, slice(None), "two members of sample a are its image\nRename"),
    ({"a.png": png(1), "b.png": png(2)}, slice(None), "has 2 samples without captions; the first is a\nAdd a.txt"),
    (GOOD, slice(700), "ends badly after sample a .*\nCopy it again"),
    (GOOD, slice(1024), "ends badly after sample a .it has no end mark"),
    (GOOD, slice(1100), "ends badly after sample a"),
    (GOOD, slice(512, None), "is no tar file without compression"),
    (GOOD, slice(0), "is no tar file without compression"),
]


@pytest.mark.parametrize(("members", "kept", "message"), TARS, ids=[message[:30] for *_, message in TARS])
def test_a_damaged_tar_is_named_with_its_sample(
    tmp_path: Path, members: dict[str, bytes | str], kept: slice, message: str
) -> None:
    file = tar(tmp_path / "a.tar", **members)
    data = file.read_bytes()
    file.write_bytes(data[kept])
    with pytest.raises(UserError, match=rf"a\.tar:? {message}"):
        open_rows(str(file))
    file.write_bytes(tar(tmp_path / "b.tar", **GOOD).read_bytes() + data)
    with pytest.raises(UserError, match=r"after sample b .another archive follows"):
        open_rows(str(file))


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ({"c.png": png(1)}, "sample c: has no captions, .* its keys: image"),
        ({"c.png": png(1)[:60], "c.txt": "x"}, "sample c: image: it cannot be read"),
        ({"c.png": png(1), "c.txt": b"\xff"}, "sample c: caption: line 1: not UTF-8"),
        ({"c.png": png(1), "c.json": "[[1, 2]]"}, "sample c: JSON: not a JSON object"),
        ({"c.png": png(1), "c.json": "{"}, "sample c: JSON: line 1: not JSON"),
        ({"c.png": png(1), "c.txt": "x", "c.mask.png": png(1)}, "sample c: its key mask holds an image"),
    ],
)
def test_a_bad_sample_is_a_bad_row(tmp_path: Path, member: dict[str, bytes | str], message: str) -> None:
    file = tar(tmp_path / "a.tar", **GOOD, **member)
    with pytest.raises(UserError, match=message):
        examples(file)
    assert examples(file, "skip")[:2] == [("one", "1"), ("two", "2")]


# --- folders and the Hub ----------------------------------------------------------------------------------------------

ROW = '{"file_name": "a.png", "text": "one"}'


@pytest.mark.parametrize(
    ("files", "read"),
    [
        ({"metadata.json": f"[{ROW}]", "x.jsonl": ROW, "a.png": png(1)}, "metadata.json"),
        ({"x.json": f"[{ROW}]", "info.json": '{"rows": []}', "a.png": png(1)}, "x.json"),
        ({"x.json": f"[{ROW}]", "x.csv": "file_name,text\na.png,one\n", "a.png": png(1)}, "x.csv"),
        ({"x.json": f"[{ROW}]", "x.tar": GOOD, "a.png": png(1)}, "x.tar"),
        ({"x.json": f"[{ROW}]", "x.tar": GOOD, "a.png": png(1), "a.txt": "one"}, ""),
    ],
)
def test_a_folder_is_searched_in_order(tmp_path: Path, files: dict[str, Any], read: str) -> None:
    write(tmp_path, **{name: content for name, content in files.items() if name != "x.tar"})
    if "x.tar" in files:
        tar(tmp_path / "x.tar", **files["x.tar"])
    rows = open_rows(str(tmp_path))
    assert rows.files == [tmp_path / read] and examples(tmp_path)[0] == ("one", "1")
    others = sum(name not in (read, "a.png", "a.txt") for name in files)
    assert sum(int(number) for number in "".join(rows.remarks).partition("not read: ")[2].split()[::2]) == others


def test_a_data_set_of_the_hub_is_a_folder(hub: Hub) -> None:  # noqa: F811
    hub.offered = {"data/train/metadata.jsonl": ROW.encode(), "data/train/a.png": png(1), "train.py": b"print()",
                   "data/test/metadata.jsonl": ROW.encode(), "data/test/a.png": png(1), 
                   "more/x.csv": b"text\na\n"}  # fmt: skip
    for place, read in {"": "data/train/metadata.jsonl", "@main/data/test": "data/test/metadata.jsonl",
                        "/more/x.csv": "more/x.csv", "@refs/convert/parquet/more": "more/x.csv"}.items():  # fmt: skip
        rows = open_rows(f"hf://datasets/org/name{place}")
        assert [file.as_posix().partition(f"{SHA}/")[2] for file in rows.files] == [read] and len(rows) == 1
    assert not [path for path in hub.asked if path.endswith("train.py")]
    for path, message in {
        "hf://datasets/org/other": "shows no dataset org/other", "hf://datasets/org/name@v9": "has no revision v9",
        "hf://datasets/org/name/no/rows": "the data set has no no/rows that is read", "hf://x": "Write hf://datasets",
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=message):
            open_rows(path)
