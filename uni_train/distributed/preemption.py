"""SIGUSR1, SIGTERM and the first Ctrl-C end a run where nothing is lost; a second Ctrl-C ends it at once.

SLURM sends the first two before it takes the nodes away (docs/scale.md); the exit code then says: start me again.
Within `deferred` (a fit) all ranks go on to the next update (Flow-GRPO: to the end of the epoch), save and end.
Elsewhere it ends at once: stages write each file whole, and continue behind the last one.

Under torchrun SIGTERM is left alone: its agent sends it to all processes when one of them is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: the script of `uni_train launch` puts the job back into the queue
INTERRUPTED = 130  # of a run that a person has ended with Ctrl-C
GRACE = 10.0  # seconds to end at once, for a process whose main thread waits for others in a collective
GRACE_AGAIN = 3.0  # the same after a second Ctrl-C


class Preempted(SystemExit):
    """The run ends to be started again. No error of anything: `except Exception` does not see it."""


@dataclass
class _State:
    signals: tuple[signal.Signals, ...] = ()  # while `preemptible`
    told: signal.Signals | None = None
    interrupts: int = 0  # SIGINTs heard
    deferred: int = 0
    ending: bool = False


_state = _State()


@contextmanager
def preemptible(environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Within it the signals end the run as described above. The main thread must enter it, on every rank.

    Raises:
        Preempted: where a signal has come and the run may end. KeyboardInterrupt: Ctrl-C outside of a fit, or again.
    """
    global _state
    agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    signals = [signal.SIGUSR1] if agent else [signal.SIGUSR1, signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as it is for jobs in a script's background
        signals.append(signal.SIGINT)
    _state = _State(tuple(signals))
    before = {number: signal.getsignal(number) for number in _state.signals}
    read, write = socket.socketpair()
    write.setblocking(False)
    wakeup = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_insist, args=(read, _state), name="preemption", daemon=True).start()
    listen()
    try:
        yield
    finally:
        for number, handler in before.items():
            # Who ends is not to be stopped on the way: launchers send SIGTERM as soon as one process has ended.
            signal.signal(number, signal.SIG_IGN if _state.ending and number != signal.SIGINT else handler)
        signal.set_wakeup_fd(wakeup)
        write.close()
        _state = _State(ending=_state.ending)


def listen() -> None:
    """Install the handlers again: Lightning puts its own in front of them, which wait for other ranks."""
    if _state.signals and signal.SIGTERM not in _state.signals:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in _state.signals:
        signal.signal(number, _heard)


@contextmanager
def deferred() -> Iterator[None]:
    """Within it a signal alone ends nothing: ask `agreed` where the run may end. All ranks must enter and leave it.

    Raises:
        Preempted: on leaving, if there was a signal.
    """
    _state.deferred += 1
    try:
        yield
    finally:
        _state.deferred -= 1
    if agreed():
        end("this fit is finished")


def agreed() -> bool:
    """Whether any rank has been told to end; the same on all of them, which must all ask."""
    if not _state.signals:
        return False
    import torch
    import torch.distributed as dist

    signalled = torch.tensor([0 if _state.told is None else 2 if _state.told == signal.SIGINT else 1])
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(signalled, dist.ReduceOp.MAX)
    if signalled.item() == 2:
        _state.told = signal.SIGINT  # whichever rank has heard it
    return bool(signalled.item())


def end(done: str) -> NoReturn:
    """End the run here; `done` says what is safe. Raises Preempted."""
    _state.ending = True
    if _state.told == signal.SIGINT:
        print(f"interrupted: {done}; run the same command again to continue", file=sys.stderr, flush=True)
        raise Preempted(INTERRUPTED)
    heard = _state.told.name if _state.told is not None else "another rank was told to end"
    print(f"{heard}: {done}; the same command continues from there", file=sys.stderr, flush=True)
    raise Preempted(EXIT_CODE)


def _heard(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        _state.interrupts += 1
        if _state.interrupts > 1 or not _state.deferred:
            raise KeyboardInterrupt
        _state.told = signal.SIGINT
        # print() may be what the signal has come into
        os.write(2, b"\nCtrl-C: saving after this update (Flow-GRPO: epoch); once more ends at once\n")
        return
    if _state.ending:
        return
    _state.told = signal.Signals(number)
    if not _state.deferred:
        end("what is finished is kept")


def _insist(read: socket.socket, state: _State) -> None:
    """End a process whose main thread does not come back to Python to hear a signal, where it may end at once."""
    interrupts = 0
    while heard := read.recv(1):
        if heard[0] in state.signals:
            interrupts += heard[0] == signal.SIGINT
            again = interrupts > 1
            code = INTERRUPTED if heard[0] == signal.SIGINT else EXIT_CODE
            wait = threading.Timer(GRACE_AGAIN if again else GRACE, _end_at_once, (state, again, code))
            wait.daemon = True
            wait.start()
    read.close()


def _end_at_once(state: _State, again: bool, code: int) -> None:
    if _state is state and not state.ending and (again or not state.deferred):
        os._exit(code)
