"""Where a process is that makes no progress: Python's faulthandler writes the stacks of its threads into its log.
And the end of one that nobody waits for any more."""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from typing import IO

STARTER = "UNI_TRAIN_STARTER"  # a variable: the number of the process that a command ends with
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


def end_with_parent(parent: int = 0) -> None:
    """From now on this process ends when its parent has, even by kill -9. parent: its number; 0: the present one's."""
    parent = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
