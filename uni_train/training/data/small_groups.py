"""Parquet whose rows are drawn at random, with small row groups: a copy in the cache, written once a machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.core.cache import cache_folder
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_path, disk_errors
from uni_train.core.reading_limits import MIB, parquet_footer, read_batches, reason

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

ROWS, BYTES = 1_000, MIB
"""Of a row group that is written: at most, and about at most."""


def with_small_groups(path: Path) -> Path | None:
    """The copy; None without a cache. One process writes it while others wait.

    Raises:
        UserError: the file is damaged, or the disk is full.
    """
    from filelock import FileLock

    if (cache := cache_folder()) is None:
        return None
    footer, status = parquet_footer(path), path.stat()
    facts = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    copy = cache / "rows" / f"{hashlib.sha256(facts.encode()).hexdigest()[:24]}.parquet"
    with disk_errors(copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{copy}.lock"):
            if not copy.exists():
                _write(path, copy, footer)
    return copy


def _write(path: Path, copy: Path, footer: FileMetaData) -> None:
    from pyarrow import parquet

    mib = f"{path.stat().st_size / MIB:,.0f} MiB"
    click.echo(f"{path} has large row groups: about {mib} are written once to {copy}", err=True)
    size = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
    rows, schema = max(1, min(ROWS, BYTES * footer.num_rows // max(size, 1))), footer.schema.to_arrow_schema()
    with atomic_path(copy) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for batch in _batches(path, rows):
            writer.write_batch(batch, rows)


def _batches(path: Path, rows: int) -> Iterator[Any]:
    import pyarrow as pa

    try:
        yield from read_batches(path, rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({reason(error)})", "Copy the file again.") from error
