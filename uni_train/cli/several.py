"""A run of several processes as one command: starting them, and a log of each."""

from __future__ import annotations

import logging
import os
import platform
import sys
import uuid
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import IO

from rich.console import Console

from uni_train.cli.failures import show
from uni_train.cli.progress import ConsoleProgress
from uni_train.errors import UserError
from uni_train.ranks import Ranks

LOGS = "logs"


def start(arguments: Sequence[str], processes: int) -> int:
    """`python -m uni_train` with these arguments, in so many processes of this machine at once, as torchrun does it.

    Their first one speaks for all. Returns the exit code: 0, or that of the process that ended the others.

    Raises:
        UserError: a process was killed.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    # torchrun does the same: cores are divided by the processes themselves (stages.cpu).
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "uni_train", *arguments)
    except SignalException as ended:
        return 128 + ended.sigval
    except ChildFailedError as failed:
        rank, first = failed.get_first_failure()
        if first.exitcode < 0:
            raise UserError(
                f"rank {rank} was ended by {first.signal_name()}",
                "What was finished is kept: run the same command again to continue.",
            ) from None
        return first.exitcode
    return 0


class Voice:
    """What a rank shows, and where: the first one on the console, all in a log of their own (<run>/logs/rank<k>.log).

    An error that ends the run is shown by one rank of every node.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._console = os.fdopen(os.dup(2), "w", encoding="utf-8")  # wherever stderr leads later
        self._log: IO[str] | None = None

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
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        log.write(f"--- {now} rank {self.ranks.rank} of {self.ranks.ranks} on {platform.node()}, pid {os.getpid()}\n")
        self._log, written = log, Console(file=log, width=120)
        if self.ranks.first:
            return ConsoleProgress(log=written)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        return ConsoleProgress(written)
