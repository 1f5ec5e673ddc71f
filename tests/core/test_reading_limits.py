"""Parquet of somebody else: what unpacks to much more than it takes is refused before it is in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from uni_train.core import reading_limits
from uni_train.core.errors import DataError, UserError
from uni_train.core.reading_limits import Unreadable, read_group, rows_of
from uni_train.data_gen.published_rows import PublishedRow, read_rows
from uni_train.eval.scored import FORMAT, DamagedShard, read_scored
from uni_train.training.data.rows import BadRow, open_rows

ONCE = pa.DictionaryArray.from_arrays(pa.array([0] * 12_000, pa.int32()), pa.array([bytes(700_000)], pa.binary()))
"""8.4 GB of which 0.7 MB are stored, in zeros: less than a kB."""
TEXTS = pa.array([f"{'a' * 3000}{number}" for number in range(1000)])
BOMBS: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "one value in all rows": (ONCE, {}),
    "one value in a list": (pa.ListArray.from_arrays(pa.array([0, 12_000], pa.int32()), ONCE), {}),
    "one value in a struct": (pa.StructArray.from_arrays([ONCE], ["bytes"]), {}),
    "zeros": (pa.array([bytes(1 << 20) + bytes([number]) for number in range(4)]), {"use_dictionary": False}),
    "no value in any row": (pa.nulls(300_000), {}),
    "one number in all rows": (pa.array([7] * 300_000), {}),
    "beginnings": (TEXTS, {"use_dictionary": False, "column_encoding": {"image": "DELTA_BYTE_ARRAY"}}),
    "JSON": (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['"' + 3000 * "a" + '"'] * 1000)), {}),
}


def write(file: Path, values: pa.Array, **how: Any) -> Path:
    ids = [str(number) if len(values) < 100_000 else "" for number in range(len(values))]
    table = pa.table({"id": ids, "image": values})
    how = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30, "store_schema": False} | how
    with parquet.ParquetWriter(file, table.schema, **how) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"format": FORMAT})
    return file


def as_shard(file: Path) -> object:
    return read_scored(file)


def as_rows(file: Path) -> object:
    return open_rows(str(file))[0]


def as_published(file: Path) -> object:
    return list(read_rows([file], PublishedRow))


@pytest.mark.parametrize("read", [as_shard, as_published])
@pytest.mark.parametrize("bomb", BOMBS)
def test_no_reader_unpacks_a_bomb(
    bomb: str, read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, how = BOMBS[bomb]
    file = write(tmp_path / "00000.parquet", values, **how)
    monkeypatch.setattr(reading_limits, "PARQUET_BYTES", 1 << 20)
    with pytest.raises((DamagedShard, DataError), match=r"it unpacks to [\d,]+ MiB at once"):
        read(file)


def test_the_limit_is_below_what_719_kb_held(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", ONCE)
    with pytest.raises(DamagedShard, match=r"x.parquet: it unpacks to 8,01\d MiB at once"):
        read_scored(file)


@pytest.mark.parametrize(("bomb", "error"), [("one value in a list", BadRow), ("zeros", UserError)])
def test_rows_to_train_on(bomb: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group is in memory as it is stored; a row of it is written out."""
    values, how = BOMBS[bomb]
    file = write(tmp_path / "x.parquet", values, **how)
    monkeypatch.setattr(reading_limits, "PARQUET_BYTES", 1 << 20)
    with pytest.raises(error, match="it unpacks to"):
        open_rows(str(file))[0]
    many = open_rows(str(write(tmp_path / "y.parquet", ONCE)))
    assert len(many[11_999].values["image"]) == 700_000


def test_what_is_read_is_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from several row groups, with values that are too many for a dictionary, and by another encoding."""
    images = [bytes([number]) * 9_000 for number in range(200)]
    table = pa.table({
        "image": images, "pair": [[one, None] for one in images], "none": pa.nulls(200, pa.string()),
        "hub": [{"bytes": one, "path": None} for one in images], "text": ["é"] * 200, "number": range(200),
        "map": pa.array([[("a", "b")]] * 200, pa.map_(pa.string(), pa.string())), "empty": [[]] * 200,
    })  # fmt: skip
    for how in ({}, {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}):
        parquet.write_table(table, tmp_path / "x.parquet", row_group_size=70, dictionary_pagesize_limit=99_999, **how)
        groups = (read_group(tmp_path / "x.parquet", number) for number in range(3))
        assert rows_of(tmp_path / "x.parquet", groups) == table.to_pylist()
    (small,) = rows_of(tmp_path / "x.parquet", [read_group(tmp_path / "x.parquet", 2, ["number"]).slice(59, 1)])
    assert small == {"number": 199}
    monkeypatch.setattr(reading_limits, "PARQUET_BYTES", 1)
    with pytest.raises(Unreadable, match="too large"):  # eight times the file is
        read_group(write(tmp_path / "y.parquet", BOMBS["zeros"][0], use_dictionary=False), 0)
