"""Errors of a command: one short block on stderr and an exit code, never a traceback.

1 = an error outside the program, 2 = wrong usage, 130 = interrupted.
UNI_TRAIN_DEBUG=1 shows tracebacks.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from types import FrameType
from typing import IO

from uni_train.console.terminal import shown
from uni_train.core.errors import UserError

_MAKE_ROOM = "Make room there; what was finished is kept, so run the command again."
_OWN_CODE = "This line is not of uni_train. UNI_TRAIN_DEBUG=1 shows the traceback."
_DISK = {
    errno.ENOSPC: ("no space left on the disk", _MAKE_ROOM),
    errno.EDQUOT: ("the disk quota is used up", _MAKE_ROOM),
    errno.EFBIG: ("the file would be larger than allowed here", "See `ulimit -f`; then run the command again."),
    errno.EACCES: ("no permission", "Change the permissions, or choose another place."),
    errno.EPERM: ("no permission", "Change the permissions, or choose another place."),
    errno.EROFS: ("the file system is read-only", "Choose another place."),
    errno.ENOENT: ("no such file or folder", None),
    errno.ENOTDIR: ("a part of this path is no folder", None),
    errno.EISDIR: ("this is a folder, not a file", None),
    errno.EEXIST: ("it exists already", None),
    errno.ENAMETOOLONG: ("the name is too long", "Choose a shorter one."),
    errno.ELOOP: ("a link that leads to itself", None),
}


def as_user_error(error: BaseException) -> UserError | None:
    """The error in a person's terms, or None if it is a defect of ours and should show its traceback."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        message, hint = _DISK.get(error.errno, (error.strerror or "it cannot be used", None))
        return UserError(f"{str(error.filename)[:300]}: {message}", hint)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("uni_train."):
        leaf = str(error.name).rpartition(".")[2]
        return UserError(f"{leaf} is not in this installation: the module {error.name} is missing")
    data_errors = sys.modules.get("uni_train.core.errors")  # only a command that imported it can have raised it
    if data_errors is None:
        return None
    if isinstance(error, data_errors.DataError):
        return UserError(str(error))
    place = data_errors.place_of(error)
    if isinstance(error, SystemExit):  # only of a line of theirs: a signal may end a run within it
        frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if not _exits(frame)]
        place = data_errors.place_in(frames[-1:])
    return UserError(f"{type(error).__name__}: {error}{place}", _OWN_CODE) if place else None


def _exits(frame: FrameType) -> bool:
    """Whether it is `exit` itself: Python's, or what stands in for it (W&B replaces `sys.exit`)."""
    return "<" in frame.f_code.co_filename or frame.f_code.co_name == "exit"


def debugging() -> bool:
    return os.environ.get("UNI_TRAIN_DEBUG", "") not in ("", "0")


def show(error: UserError, stream: IO[str] | None = None) -> None:
    """Print the error to `stream` (None: stderr), red where that is a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True) if stream is None else Console(file=stream)
    console.print(Text(f"error: {shown(error.message)}", style="bold red"), soft_wrap=True)
    if error.hint:
        console.print(Text(f"  {shown(error.hint)}", style="red"), soft_wrap=True)
