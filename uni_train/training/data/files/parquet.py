"""Parquet: a file is read one row group at a time, and the last groups are kept.

So small groups (100 rows) suit random access best.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import Unreadable, parquet_footer, read_group, reason, rows_of
from uni_train.training.data.rows import FILES, KEPT_BYTES, BadRow, Row, RowFile


@FILES.register("parquet")
class ParquetFile(RowFile):
    """The rows of one Parquet file. encoded: whether they hold bytes, as of images; such are taken to name no files."""

    def __init__(self, path: Path, folder: Path) -> None:
        import pyarrow as pa

        self.path, self.folder = path, folder
        try:
            metadata = parquet_footer(path)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path} is no Parquet file that can be read ({error})", "Copy it again.") from error
        self._ends = list(accumulate(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))
        columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        self.encoded = any(c.physical_type == "BYTE_ARRAY" and c.logical_type.type != "STRING" for c in columns)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Row:
        group = bisect_right(self._ends, index)
        at = index - (self._ends[group - 1] if group else 0)
        try:
            (row,) = rows_of(self.path, [_groups.get(self.path, group).slice(at, 1)])
        except Unreadable as error:
            raise BadRow(reason(error)) from None
        return Row(row, self.folder)

    def where(self, index: int) -> str:
        return f"{self.path}, row {index + 1}"

    def named(self, index: int) -> Iterator[Path]:
        return iter(()) if self.encoded else super().named(index)


class _Groups:
    """The row groups that were read last, of all files together."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, int], Any] = OrderedDict()
        self._bytes = 0

    def get(self, path: Path, group: int) -> Any:
        """A pyarrow table. Raises UserError for a damaged file."""
        import pyarrow as pa

        key = (path, group)
        table = self._kept.get(key)
        if table is not None:
            self._kept.move_to_end(key)
            return table
        try:
            table = read_group(path, group)
        except Unreadable as error:
            raise UserError(f"{path}, row group {group + 1}: {error.reason}", "Make smaller row groups.") from None
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path}: row group {group + 1} is damaged ({error})", "Copy the file again.") from error
        self._kept[key] = table
        self._bytes += table.nbytes
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            self._bytes -= old.nbytes
        return table


_groups = _Groups()
