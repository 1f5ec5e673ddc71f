"""Several processes of this machine from one command, `strategy.devices=N`: torchrun's own agent, called in process.

torchrun itself would be a second command to type, and ends with a table of exit codes.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uni_train.core.errors import UserError
from uni_train.distributed.preemption import EXIT_CODE
from uni_train.distributed.ranks import TIMEOUT
from uni_train.distributed.scripts import ON_GPUS

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError


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
    for name, value in ON_GPUS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # DDP says that it found every weight used
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        shutdown_timeout=int(TIMEOUT.total_seconds()),  # after Ctrl-C an epoch goes on and saves; a second ends at once
        logs_specs=DefaultLogsSpecs(),
        signals_to_handle="SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
    )
    try:
        elastic_launch(config, sys.executable)("-m", "uni_train", *arguments)
    except SignalException as ended:
        return EXIT_CODE if ended.sigval == signal.SIGUSR1 else 128 + ended.sigval
    except ChildFailedError as failed:
        return exit_code(failed)
    return 0


def exit_code(failed: ChildFailedError) -> int:
    """That of the process that failed first, which has shown why.

    Raises:
        UserError: it was killed, or ended itself by a signal, as nccl does after a timeout.
    """
    rank, first = failed.get_first_failure()
    if first.exitcode < 0:
        raise UserError(
            f"rank {rank} was ended by {first.signal_name()}",
            "Look at its log in the run's folder. What was finished is kept: run the same command again to continue.",
        )
    if rank and first.exitcode == EXIT_CODE:
        print(f"rank {rank} was told to end; the same command continues", file=sys.stderr)
    return first.exitcode
