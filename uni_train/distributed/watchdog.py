"""Where a process is that makes no progress: Python's faulthandler writes the stacks of its threads into its log."""

from __future__ import annotations

import faulthandler
from typing import IO

_watched: tuple[float, IO[str]] | None = None


def watch(seconds: float, log: IO[str]) -> None:
    """From now on `seconds` without `note` write the stacks of all threads into `log`, which stays open."""
    global _watched
    _watched = seconds, log
    note()


def note() -> None:
    """This process makes progress: a stage, an update, a batch of images."""
    if _watched is not None:
        faulthandler.dump_traceback_later(_watched[0], file=_watched[1])
