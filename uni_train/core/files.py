"""Atomic writes: a reader never sees half a file, even after kill -9 or on a full disk.

A file is written beside its place under a name of its own, flushed to the disk, and renamed. Errors of the disk carry
the path that they were about, which plain write() does not give.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError

_PARTIAL = re.compile(r"\..+\.[0-9a-f]{8}\.partial(\..+)?")
"""What `atomic_path` names a file that is not finished."""


@contextlib.contextmanager
def atomic_path(path: Path, flushed: bool = True) -> Iterator[Path]:
    """For writers that want a path: `with atomic_path(p) as temporary: save_file(tensors, temporary)`.

    On leaving, the temporary file is flushed and renamed to `path`; on an exception it is removed and `path` stays as
    it was. The suffix is kept, for libraries that look at it. The file obeys the umask, whatever the writer does
    (safetensors makes it readable for its owner alone). Raises OSError with `filename` set to `path`.
    flushed: wait for the disk; without, a power failure may leave an empty file.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:8]}.partial{path.suffix}")
    try:
        with _named(path):
            mode = _mode_of_new_file(temporary)
            yield temporary
            if temporary.stat().st_nlink == 1:  # another name of a file has that file's mode
                temporary.chmod(mode)
            if flushed:
                flush(temporary)
            os.replace(temporary, path)
            if flushed:
                flush(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def below(folder: Path, name: str, links: bool = False) -> Path:
    """`folder / name`, for a name that comes from data. Raises UserError unless it lies below `folder`.

    links: what is a link there may lead elsewhere, as all files of a Hub snapshot do.
    """
    path, real = Path(folder) / name, os.path.abspath if links else os.path.realpath
    if "\0" in name or Path(real(folder)) not in Path(real(path)).parents:
        raise UserError(
            f"{name!r} is no name of a file below {folder}", "It comes from the data: look at where you have them from."
        )
    return path


def remove_partials(folder: Path) -> None:
    """Remove what writers that were killed have left below `folder`. Nobody may be writing there."""
    for file in folder.rglob(".*.partial*"):
        if _PARTIAL.fullmatch(file.name):
            with contextlib.suppress(OSError):
                file.unlink()


def atomic_write_bytes(path: Path, data: bytes, flushed: bool = True) -> None:
    """Replace the file at `path` by `data`, completely or not at all. flushed: as for `atomic_path`."""
    with atomic_path(path, flushed) as temporary:
        temporary.write_bytes(data)


def atomic_write_text(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8, completely or not at all."""
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_json(path: Path, value: Any) -> None:
    """Replace the file at `path` by `value` as JSON. Raises ValueError for NaN and infinities, which JSON lacks."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    atomic_write_text(path, text + "\n")


def sha256_of(path: Path) -> str:
    """The hex digest of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mode_of_new_file(path: Path) -> int:
    """What the umask leaves of rw-rw-rw-; Python can only ask for it by changing it, for all threads."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        path.unlink()


def flush(path: Path) -> None:
    """What was written there is on the disk, not in a cache alone."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder; the rename itself has happened.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Give an OSError without a file name (or with that of the temporary file) the name people know."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """What the disk refuses, as a UserError that names `path`."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = "the disk is full" if full else f"cannot be written ({error.strerror or error})"
        hint = "Free some space" if full else "Make the folder writable"
        raise UserError(
            f"{path}: {problem}", f"{hint} and run the same command again; what is finished is kept."
        ) from error
