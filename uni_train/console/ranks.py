"""What the processes of one run show: a log of each, and one message that ends all of them and names the rank.

torch detects the failure. A process that dies closes its connections; one that hangs lets a collective run into the
process group's timeout (`strategy.timeout`). Either is an error in the ranks that wait. They then look into the store
where they met: which rank has failed with a reason of its own, or which does not answer.
"""

from __future__ import annotations

import os
import platform
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from uni_train.console.failures import as_user_error, debugging, show
from uni_train.core.errors import UserError
from uni_train.distributed.preemption import INTERRUPTED
from uni_train.distributed.ranks import Ranks
from uni_train.distributed.watchdog import watch

LOGS = "logs"
GRACE = 3.0  # seconds for a rank with a reason of its own to tell it, and for all that wait to say so
ANSWER = 20.0  # seconds for the store's answers: without a cable there is none, and no error either
LOST = re.compile("gloo|pair closure|nccl|DistBackendError|DistNetworkError|DistStoreError", re.IGNORECASE)


def open_log(ranks: Ranks, run: Path, timeout: float) -> None:
    """From now on this rank writes into <run>/logs/rank<k>.log, but rank 0, which keeps the console.

    Half of `timeout` seconds without progress write a rank's stacks there (uni_train.distributed.watchdog).

    Raises:
        OSError: the log cannot be written.
    """
    path = run / LOGS / f"rank{ranks.rank}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = str(path.parent / "flight_recorder_rank")  # of nccl, when it times out
    log = path.open("a", encoding="utf-8", buffering=1)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    log.write(f"--- {now} rank {ranks.rank} of {ranks.world_size} on {platform.node()}, pid {os.getpid()}\n")
    watch(timeout / 2, log)
    if not ranks.is_main:
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            os.dup2(log.fileno(), descriptor)


@contextmanager
def one_message(ranks: Ranks) -> Iterator[None]:
    """Within it, with the process group joined, an error of a rank ends its process; one rank of all shows it."""
    console = os.fdopen(os.dup(2), "w", encoding="utf-8")  # wherever stderr leads later
    hosts = [platform.node()] * ranks.world_size
    try:
        hosts = ranks.gather(platform.node())
        yield
        ranks.barrier()
    except BaseException as error:
        code, shown = 1, None
        try:
            code, shown = _reason(ranks, hosts, error)
        finally:
            if shown is not None:
                show(shown, console)
            leave(code)


def leave(code: int) -> NoReturn:
    """End this rank's process at once, without the interpreter's end.

    That may wait for connections and threads that wait for other ranks. And a thread of gloo that frees a tensor during
    it aborts the process (pytorch#179291); DeepSpeed and `torch.distributed.nn` keep such threads to the end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _reason(ranks: Ranks, hosts: list[str], error: BaseException) -> tuple[int, UserError | None]:
    """The exit code, and the message if it is this rank's to show."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    with suppress(OSError):  # a full disk
        get_error_handler().record_exception(error)  # torchrun's table shows it
    lost = isinstance(error, RuntimeError) and LOST.search(f"{type(error).__name__} {error}") is not None
    if not lost:
        # torchrun tells all to end as soon as one process has.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ended = isinstance(error, SystemExit) and not isinstance(error.__context__, KeyboardInterrupt)
    if isinstance(error, SystemExit) and ended and as_user_error(error) is None:
        return (error.code if isinstance(error.code, int) else int(error.code is not None)), None
    if isinstance(error, KeyboardInterrupt | SystemExit) and not ended:
        reason, code = UserError("interrupted: run the same command again to continue"), INTERRUPTED
    elif lost or (user := None if debugging() else as_user_error(error)) is None:  # type: ignore[arg-type]
        if not (lost and ranks.is_main) or debugging():  # where rank 0 waited is no defect, and this the console
            traceback.print_exception(error)
        reason, code = UserError(f"rank {ranks.rank} on {hosts[ranks.rank]}: {type(error).__name__}: {error}"), 1
    else:
        own = "" if ranks.is_main else f"rank {ranks.rank} on {hosts[ranks.rank]}: "
        reason, code = UserError(f"{own}{user.message}", user.hint), user.exit_code
    try:
        return code, ThreadPoolExecutor(1).submit(_first, ranks, hosts, reason, lost).result(ANSWER)
    except Exception:  # the store is gone, and with it the process that kept it
        return code, reason if not lost else _unreachable(hosts) if ranks.local_rank == 0 else None


def _first(ranks: Ranks, hosts: list[str], reason: UserError, lost: bool) -> UserError | None:
    """`reason`, or who does not answer if the rank has `lost` a connection; None if another rank has told it."""
    from torch.distributed import PrefixStore
    from torch.distributed.distributed_c10d import _get_default_store

    store = PrefixStore("uni_train/failed", _get_default_store())
    if lost:
        time.sleep(GRACE)
        store.set(f"waits{ranks.rank}", "yes")
        time.sleep(GRACE)
        silent = [rank for rank in range(ranks.world_size) if not store.check([f"waits{rank}"])]
        reason = _silent(hosts, silent, reason)
    elif not ranks.is_main:
        time.sleep(GRACE / 6)  # what all ranks have found is left to rank 0
    me = str(ranks.rank)
    return reason if store.compare_set("first", "", me).decode() == me else None


def _silent(hosts: list[str], silent: list[int], reason: UserError) -> UserError:
    if not silent:
        where = " and ".join(dict.fromkeys(hosts))
        return UserError(
            f"all ranks wait for each other: nothing passes between the processes of {where}",
            f"Look at the network, GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME. {_AGAIN} ({reason.message})",
        )
    which = ", ".join(f"rank {rank} on {hosts[rank]}" for rank in silent[:8])
    return UserError(
        f"{which} did not answer: killed, or without progress for strategy.timeout seconds",
        f"Where it was is at the end of {LOGS}/rank{silent[0]}.log in the run's folder. "
        f"If it was only slow, raise strategy.timeout. {_AGAIN}",
    )


def _unreachable(hosts: list[str]) -> UserError:
    at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    return UserError(f"rank 0 on {hosts[0]} ({at}) is gone: it has failed, was killed, or its node is gone", _AGAIN)


_AGAIN = "What was finished is kept: run the same command again to continue."
