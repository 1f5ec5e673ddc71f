"""Finished batches of rows on disk: one Parquet file a batch, written once and renamed into place.

A file that exists under its final name is complete: killing the process at any moment leaves whole shards and at most
one `.partial` file, which nobody reads. The footer holds digests of the rows and of their images (Parquet's own
checksums leave the page headers out), so a damaged file is an error with its name, never a silently different number.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.errors import UserError
from uni_train.files import atomic_path

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
_DICTIONARY_BYTES = 1 << 27  # equal images of a shard (a case asked in several settings) are stored once


class DamagedShard(UserError):
    """A shard cannot be read back as it was written; the message names the file."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem}", "Delete this file and run the same command again: only its batch is made anew."
        )
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[DamagedShard], tuple[Path, str]]:  # type: ignore[override]
        return type(self), (self.path, self.problem)


def digest_rows(rows: Sequence[Row], blobs: Collection[str]) -> str:
    """Of every column but the `blobs`, so that it can be checked without reading them."""
    plain = [[value for name, value in sorted(row.items()) if name not in blobs] for row in rows]
    return hashlib.blake2b(json.dumps(plain).encode(), digest_size=16).hexdigest()


def digest_blobs(rows: Sequence[Row], blobs: Collection[str]) -> str:
    """Of the binary columns `blobs`, each of bytes, None, or a list of bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for row in rows:
        for name in sorted(blobs):
            value = row[name]
            for one in value if isinstance(value, list) else [value]:
                digest.update(b"-" if one is None else len(one).to_bytes(8, "big") + one)
    return digest.hexdigest()


def write_rows(
    path: Path,
    rows: Sequence[Row],
    schema: pa.Schema,
    form: str,
    blobs: Collection[str],
    group_bytes: int | None = None,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Write one finished batch under `path`, atomically: a temporary neighbour, flushed to disk, then renamed.

    Args:
        form: what the rows are ("uni_train.samples/1"), stored in the footer. blobs: the binary columns.
        facts: further words for the footer. group_bytes: about so many bytes of blobs are a row group, the least that a
            reader takes; None: one for all.

    Raises:
        UserError: the disk is full, or the folder cannot be written; nothing half-written stays behind then.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    digests = {**(facts or {}), "format": form, "rows": digest_rows(rows, blobs), "images": digest_blobs(rows, blobs)}
    table = pa.Table.from_pylist(list(rows), schema=schema.with_metadata(digests))
    group = None
    if group_bytes is not None and rows:
        each = sum(table.column(name).nbytes for name in blobs) / len(rows)
        group = max(1, int(group_bytes / max(each, 1)))
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            pq.write_table(
                table, file, row_group_size=group, compression="zstd", dictionary_pagesize_limit=_DICTIONARY_BYTES
            )


def read_rows(
    path: Path, schema: pa.Schema, form: str, blobs: Collection[str], columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The rows of one shard, in the order in which they were written.

    Args:
        columns: those to read; None: all. Only what is read whole (all columns but the blobs, or all) is verified.

    Raises:
        DamagedShard: it is no such shard, or its content is not what was written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = read_footer(path, form)
    names = list(schema.names) if columns is None else list(columns)
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, columns=names, partitioning=None).to_pylist()
        intact = True
        if set(schema.names) - set(blobs) <= set(names):
            intact = digest_rows(rows, blobs) == footer.get("rows")
        if set(blobs) <= set(names):
            intact = intact and digest_blobs(rows, blobs) == footer.get("images")
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedShard(path, f"damaged shard ({first_line(error)})") from error
    if not intact:
        raise DamagedShard(path, "damaged shard (its content is not what was written)")
    return rows


def form_of(path: Path) -> str:
    """What its rows are, as the footer says; "unknown" of other files. Raises as `read_footer`."""
    return _footer(path).get("format", "unknown")


def read_footer(path: Path, form: str) -> dict[str, str]:
    """The footer's words; quick, and enough to tell a truncated file. Raises DamagedShard, FileNotFoundError."""
    found = _footer(path)
    if found.get("format") != form:
        kind = form.rpartition(".")[2].partition("/")[0]
        raise DamagedShard(path, f"not a shard of {kind} (format {found.get('format', 'unknown')}, expected {form})")
    return found


def _footer(path: Path) -> dict[str, str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedShard(path, f"truncated or damaged shard ({first_line(error)})") from error
    words = schema.metadata or {}
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in words.items()}


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """What the disk refuses, as a UserError that names `path`."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = "the disk is full" if full else f"cannot be written ({error.strerror or error})"
        hint = "Free some space" if full else "Make the folder writable"
        raise UserError(
            f"{path}: {problem}", f"{hint} and run the same command again; finished batches are kept."
        ) from error


def first_line(error: BaseException) -> str:
    """What an error says, without the rest of its page."""
    return (str(error).splitlines() or [type(error).__name__])[0]
