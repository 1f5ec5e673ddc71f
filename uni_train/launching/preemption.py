"""SIGTERM and SIGUSR1 end a run where nothing is lost, with an exit code that says: start me again.

SLURM sends them before it takes the nodes away (docs/launch.md). Within `deferred` (a fit) the run goes on to the next
update, which all ranks agree on, saves a checkpoint and ends. Elsewhere it ends at once: stages write each file whole,
and continue behind the last one.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: the script of `uni_train launch` puts the job back into the queue
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
GRACE = 10.0  # seconds to end at once, for a process whose main thread waits for others in a collective


class Preempted(SystemExit):
    """The run ends to be started again. No error of anything: `except Exception` does not see it."""

    def __init__(self, signal_: signal.Signals | None) -> None:
        super().__init__(EXIT_CODE)
        self.signal = signal_  # None: another rank was told


@dataclass
class _State:
    installed: bool = False
    told: signal.Signals | None = None
    deferred: int = 0


_state = _State()


@contextmanager
def preemptible() -> Iterator[None]:
    """Within it the signals end the run as described above. The main thread must enter it, on every rank.

    Raises:
        Preempted: where a signal has come and the run may end.
    """
    before = {one: signal.getsignal(one) for one in SIGNALS}
    read, write = socket.socketpair()
    write.setblocking(False)
    fd_before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    _state.installed, _state.told = True, None
    listen()
    threading.Thread(target=_insist, args=(read,), name="preemption", daemon=True).start()
    try:
        yield
    finally:
        _state.installed = False
        for one, handler in before.items():
            signal.signal(one, handler)
        signal.set_wakeup_fd(fd_before)
        write.close()


def listen() -> None:
    """Install the handlers (again: Lightning puts its own in front of them, which talk to other ranks)."""
    if _state.installed:
        for one in SIGNALS:
            signal.signal(one, _heard)


@contextmanager
def deferred() -> Iterator[None]:
    """Within it nothing ends by a signal alone: ask `agreed` where the run may."""
    _state.deferred += 1
    try:
        yield
    finally:
        _state.deferred -= 1


def agreed() -> bool:
    """Whether any rank has been told to end; the same on all of them, which must all ask."""
    if not _state.installed:
        return False
    import torch
    import torch.distributed as dist

    told = _state.told is not None
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return told
    anyone = torch.tensor([int(told)])
    dist.all_reduce(anyone, dist.ReduceOp.MAX)
    return bool(anyone.item())


def end(done: str) -> NoReturn:
    """End the run here, where `done` is safe. Raises Preempted."""
    name = _state.told.name if _state.told is not None else "a signal to another rank"
    print(f"{name}: {done}; the same command continues from there", file=sys.stderr, flush=True)
    raise Preempted(_state.told)


def _heard(number: int, frame: FrameType | None) -> None:
    _state.told = signal.Signals(number)
    if not _state.deferred:
        for one in SIGNALS:  # the end is near; a second signal must not disturb it
            signal.signal(one, signal.SIG_IGN)
        end("what is finished is kept")


def _insist(read: socket.socket) -> None:
    """End a process whose main thread does not come back to Python to hear a signal, outside of fits."""
    while heard := read.recv(1):
        if heard[0] not in SIGNALS:
            continue
        left = threading.Event()
        left.wait(GRACE)
        if _state.installed and not _state.deferred:
            os._exit(EXIT_CODE)
