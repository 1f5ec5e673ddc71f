"""Parquet: a file is read one row group at a time, and the last groups are kept.

So small groups (100 rows) suit random access best. A file with large ones is read from a copy with small ones.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import (
    MIB,
    PARQUET_BYTES,
    Unreadable,
    parquet_footer,
    read_group,
    reason,
    rows_of,
    written_out,
)
from uni_train.training.data.rows import FILES, KEPT_BYTES, BadRow, Row, RowFile

LARGE_BYTES, LARGE_ROWS = 64 * MIB, 16_384  # of a row group: more takes long to read for one row, or much to keep


@FILES.register("parquet")
class ParquetFile(RowFile):
    """The rows of one Parquet file.

    Args:
        keep: whether row groups that were read are kept.

    Attributes:
        encoded: whether they hold bytes, as of images; such are taken to name no files.
    """

    def __init__(self, path: Path, folder: Path, keep: bool = True) -> None:
        import pyarrow as pa

        self.path, self.folder, self._keep = path, folder, keep
        try:
            metadata = parquet_footer(path)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path} is no Parquet file that can be read ({error})", "Copy it again.") from error
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self._ends = list(accumulate(group.num_rows for group in groups))
        self._large = any(one.total_byte_size > LARGE_BYTES or one.num_rows > LARGE_ROWS for one in groups)
        columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        self.encoded = any(c.physical_type == "BYTE_ARRAY" and c.logical_type.type != "STRING" for c in columns)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Row:
        if self._copy is not None:
            return self._copy[index]
        group = bisect_right(self._ends, index)
        at = index - (self._ends[group - 1] if group else 0)
        table, fits = _groups.get(self.path, group) if self._keep else (_read(self.path, group), False)
        row = table.slice(at, 1)
        try:
            (values,) = row.to_pylist() if fits else rows_of(self.path, [row])
        except Unreadable as error:
            raise BadRow(reason(error)) from None
        return Row(values, self.folder)

    @cached_property
    def _copy(self) -> ParquetFile | None:
        """The same rows in small groups, which are not worth keeping."""
        if not (self._large and self._keep):
            return None
        from uni_train.training.data.small_groups import with_small_groups

        copy = with_small_groups(self.path)
        return None if copy is None else ParquetFile(copy, self.folder, keep=False)

    def where(self, index: int) -> str:
        return f"{self.path}, row {index + 1}"

    def named(self, index: int) -> Iterator[Path]:
        return iter(()) if self.encoded else super().named(index)


@lru_cache(maxsize=32)
def _footer(path: Path, modified: int) -> Any:
    return parquet_footer(path)


def _read(path: Path, group: int) -> Any:
    """A pyarrow table. Raises UserError for a damaged file."""
    import pyarrow as pa

    try:
        return read_group(path, group, footer=_footer(path, os.stat(path).st_mtime_ns))
    except Unreadable as error:
        raise UserError(f"{path}, row group {group + 1}: {error.reason}", "Make smaller row groups.") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: row group {group + 1} is damaged ({error})", "Copy the file again.") from error


class _Groups:
    """The row groups that were read last, of all files together."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, int], tuple[Any, bool]] = OrderedDict()
        self._bytes = 0

    def get(self, path: Path, group: int) -> tuple[Any, bool]:
        """As `_read`; and whether all its rows together are small enough, so that none need be measured."""
        key = (path, group)
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        table = _read(path, group)
        self._kept[key] = table, written_out(table) <= PARQUET_BYTES
        self._bytes += table.nbytes
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            _, (old, _) = self._kept.popitem(last=False)
            self._bytes -= old.nbytes
        return self._kept[key]


_groups = _Groups()
