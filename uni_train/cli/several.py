"""A run of several processes as one command: starting them, and a log of each."""

from __future__ import annotations

import logging
import os
import platform
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from rich.console import Console

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


@contextmanager
def logged(ranks: Ranks, folder: Path) -> Iterator[ConsoleProgress]:
    """What a rank reports with. The first one's goes to the console and to <folder>/logs/rank0.log; all that the others
    write, whatever writes it, goes to their logs alone. Alone there is no log.

    Raises:
        UserError: the log cannot be written.
    """
    if ranks.ranks == 1:
        yield ConsoleProgress()
        return
    path = folder / LOGS / f"rank{ranks.rank}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  # kept open until the process ends
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "Choose another place with out=FOLDER.") from error
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    log.write(f"--- {now} rank {ranks.rank} of {ranks.ranks} on {platform.node()}, pid {os.getpid()}\n")
    if ranks.first:
        yield ConsoleProgress(log=Console(file=log, width=120))
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    yield ConsoleProgress(Console(file=log, width=120))


def speaker() -> Callable[[UserError], None]:
    """Shows an error on what is the console's stderr now, wherever stderr leads later."""
    from uni_train.cli.failures import show

    stream = os.fdopen(os.dup(2), "w", encoding="utf-8")
    return lambda error: show(error, stream)
