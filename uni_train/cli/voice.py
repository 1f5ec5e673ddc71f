"""The output of each rank: rank 0 writes to the console, every rank to its own log."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime
from pathlib import Path
from typing import IO

from rich.console import Console

from uni_train.cli.failures import as_user_error, debugging, show
from uni_train.cli.progress import ConsoleProgress
from uni_train.distributed.ranks import Ranks
from uni_train.errors import UserError

LOGS = "logs"


class Voice:
    """The output of a rank: rank 0 writes to the console, all ranks to <run>/logs/rank<k>.log.

    An error that ends the run is shown by one rank of every node.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._console = os.fdopen(os.dup(2), "w", encoding="utf-8")  # wherever stderr leads later
        self._log: IO[str] | None = None

    def explain(self, error: BaseException) -> UserError | None:
        """The error in a person's terms; None for a defect, whose traceback is wanted."""
        return None if debugging() else as_user_error(error)

    def error(self, error: UserError) -> None:
        """The end of the run."""
        if self.ranks.local_rank == 0:
            show(error, self._console)
        if self._log is not None:
            self._log.write(f"error: {error}\n")

    def trace(self, text: str) -> None:
        """For whoever looks for a defect."""
        (self._log or self._console).write(text)

    def progress(self, folder: Path) -> ConsoleProgress:
        """What stages report with. From now on, whatever writes on a rank other than the first writes into its log.

        Raises:
            UserError: the log cannot be written.
        """
        path = folder / LOGS / f"rank{self.ranks.rank}.log"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            log = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  # until the process ends
        except OSError as error:
            raise UserError(
                f"cannot write {path}: {error.strerror}", "Choose another place with out=FOLDER."
            ) from error
        who = f"rank {self.ranks.rank} of {self.ranks.world_size} on {platform.node()}"
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        log.write(f"--- {now} {who}, pid {os.getpid()}\n")
        self._log, written = log, Console(file=log, width=120)
        if self.ranks.is_main:
            return ConsoleProgress(log=written)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        return ConsoleProgress(written)
