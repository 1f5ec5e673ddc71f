"""How the processes of one run end: what stops one of them stops all, and is said once on every node.

The processes share a store, which torchrun keeps for them, or rank 0. A rank that fails writes there why,
before its connections to the others close. A thread of every rank looks there twice a second, because the rank itself
may be waiting for one that will not come. The threads count there as well: a rank that was killed is known by its
count.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, NoReturn, Protocol

from uni_train.distributed.ranks import Ranks
from uni_train.errors import UserError

EVERY = 0.5  # seconds between two checks into the store
GRACE = 3.0  # seconds for a rank to end by itself where another has failed, and for a killed one to be missed
REACH = timedelta(seconds=30)  # a store that is not to be connected to for so long is gone
ANSWER = 5.0  # seconds for an answer to one who ends: without a cable there is none, and no error either
INTERRUPTED = 130

_FAILED, _SHOWN, _COUNT, _HOST = "failed", "shown", "count", "host"


class Voice(Protocol):
    """How a rank speaks (uni_train.cli.voice)."""

    def explain(self, error: BaseException) -> UserError | None:
        """The error in a person's terms; None for a defect."""

    def error(self, error: UserError) -> None:
        """Shows the error that ends the run."""

    def trace(self, text: str) -> None:
        """Writes a traceback where it is looked for."""


@dataclass(frozen=True, slots=True)
class Report:
    """Why a rank ends. `defect`: not for a reason of the user's."""

    rank: int
    host: str
    message: str
    hint: str | None = None
    exit_code: int = 1
    defect: bool = False


@contextmanager
def one_end(ranks: Ranks, voice: Voice) -> Iterator[Callable[[UserError], NoReturn]]:
    """Within it, which is entered by the main thread with the process group joined, an error of one rank ends the
    processes of all. So does SIGTERM, which torchrun sends to all when one of them is gone, and a call, from any
    thread, of the function that it yields.
    """
    end = _End(ranks, voice)
    before = signal.signal(signal.SIGTERM, lambda *_: end.terminate())
    try:
        yield end.fail
        ranks.barrier()
    except BaseException as error:
        end.fail(error)
    signal.signal(signal.SIGTERM, before)
    end.stop()


class _End:
    def __init__(self, ranks: Ranks, voice: Voice) -> None:
        self.ranks, self.voice = ranks, voice
        self._stop, self._failing, self._saying = threading.Event(), threading.Event(), threading.Lock()
        self._store = _Patient(_store())
        self._thread = threading.Thread(target=self._watch, args=(_store(),), name="ending", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The run has succeeded."""
        self._stop.set()

    def terminate(self) -> None:
        """In a signal handler: find out why, and end, while the rank goes on or waits."""
        if not self._failing.is_set():
            self._failing.set()
            threading.Thread(target=self._find_out, name="terminated", daemon=True).start()

    def _find_out(self) -> None:
        own = Report(self.ranks.rank, platform.node(), "terminated", exit_code=128 + signal.SIGTERM)
        self._end(self._failed(EVERY) or self._gone() or own)

    def fail(self, error: BaseException) -> NoReturn:
        """End this process and, by telling them, all others."""
        self._failing.set()
        own = self._report(error)
        if own.defect:
            self.voice.trace("".join(traceback.format_exception(error)))
            # Perhaps this rank has only lost the connection to one that has failed for a better reason.
            own = self._failed(GRACE) or self._gone() or own
        elif isinstance(error, SystemExit):
            self._exit(own)
        told = self._tell(own)
        self._end(own if not own.defect else told)

    def _report(self, error: BaseException) -> Report:
        own = Report(self.ranks.rank, platform.node(), "")
        if isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt):
            return replace(own, message="interrupted", exit_code=INTERRUPTED)
        if isinstance(error, SystemExit):
            return replace(own, exit_code=error.code if isinstance(error.code, int) else int(error.code is not None))
        user = self.voice.explain(error) if isinstance(error, Exception) else None
        if user is not None:
            return replace(own, message=user.message, hint=user.hint, exit_code=user.exit_code)
        text = "".join(traceback.format_exception(error)).rstrip()
        return replace(own, message=f"{type(error).__name__}: {error}", hint=text, defect=True)

    def _tell(self, report: Report) -> Report:
        """Leave `report` in the store, unless there is one; the one that is there then."""
        try:
            return Report(**json.loads(self._store.ask("compare_set", _FAILED, "", json.dumps(asdict(report)))))
        except Exception:  # the store is gone, and with it whoever would have read it
            return report

    def _failed(self, seconds: float) -> Report | None:
        """What another rank has left in the store within so many seconds."""
        until = time.monotonic() + seconds
        try:
            while not self._store.ask("check", [_FAILED]):
                if time.monotonic() > until:
                    return None
                time.sleep(EVERY / 5)
            return Report(**json.loads(self._store.ask("get", _FAILED)))
        except Exception:
            return None

    def _gone(self) -> Report | None:
        """The ranks that have stopped counting."""
        try:
            counts = self._counts()
            time.sleep(GRACE)
            gone = [rank for rank, count in self._counts().items() if count == counts[rank]]
            hosts = {rank: self._store.ask("get", f"{_HOST}/{rank}").decode() for rank in gone}
        except Exception:
            return self._unreachable()
        gone = [rank for rank in gone if rank != self.ranks.rank]
        if not gone:
            return None
        which = ", ".join(f"rank {rank} on {hosts[rank]}" for rank in gone[:8])
        return Report(self.ranks.rank, platform.node(), f"{which} ended without a word", _AFTER_A_KILL)

    def _unreachable(self) -> Report:
        at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        return Report(self.ranks.rank, platform.node(), f"the first node of this run ({at}) is gone", _AFTER_A_KILL)

    def _counts(self) -> Mapping[int, int]:
        return {rank: self._store.ask("add", f"{_COUNT}/{rank}", 0) for rank in range(self.ranks.world_size)}

    def _watch(self, store: Any) -> None:
        """The thread: count, and end where another rank has failed and this one does not notice."""
        try:
            store.set(f"{_HOST}/{self.ranks.rank}", platform.node())
            while not self._stop.wait(EVERY):
                store.add(f"{_COUNT}/{self.ranks.rank}", 1)
                if store.check([_FAILED]) and not self._failing.wait(GRACE):
                    self._end(Report(**json.loads(store.get(_FAILED))))
        except Exception:  # no answer
            if not self._stop.wait(GRACE) and not self._failing.is_set():
                self._end(self._unreachable())

    def _end(self, report: Report) -> NoReturn:
        """Say it, where it is this rank's to say, and exit."""
        if not self._saying.acquire(blocking=False):
            time.sleep(4 * GRACE)  # the other thread of this process is at it
        mine = report.rank == self.ranks.rank
        error = _told(report, prefix=not mine)
        self.voice.error(error)
        if self.ranks.is_main:
            self._mark_shown()
        elif mine:
            # torchrun ends the others as soon as this process has ended: not before rank 0 has told why.
            self._wait_until_shown()
        self._exit(report)

    def _mark_shown(self) -> None:
        try:
            self._store.ask("set", _SHOWN, "yes")
        except Exception:
            return

    def _wait_until_shown(self) -> None:
        until = time.monotonic() + 4 * GRACE
        try:
            while not self._store.ask("check", [_SHOWN]) and time.monotonic() < until:
                time.sleep(EVERY / 5)
        except Exception:
            return

    def _exit(self, report: Report) -> NoReturn:
        """Without the interpreter's end, which may wait for connections and threads that wait for other ranks."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(report.exit_code)


_AFTER_A_KILL = "It was killed, or its node is gone. What was finished is kept: run the same command again to continue."


def _told(report: Report, prefix: bool) -> UserError:
    if report.exit_code > 128:
        return UserError(f"{report.message}: run the same command again to continue")
    where = f"rank {report.rank} on {report.host}: " if prefix else ""
    return UserError(f"{where}{report.message}", report.hint)


def _store() -> Any:
    """A connection of its own to the store where the processes have met."""
    from torch.distributed import PrefixStore, TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, timeout=REACH, wait_for_workers=False)
    return PrefixStore(f"uni_train/ending/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


class _Patient:
    """A store whose silence is an error, too."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def ask(self, method: str, *arguments: Any) -> Any:
        """What the store's method returns.

        Raises:
            TimeoutError: nothing within ANSWER seconds. Exception: whatever it raises.
        """
        answer: Future[Any] = Future()

        def wait() -> None:
            try:
                answer.set_result(getattr(self._store, method)(*arguments))
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=wait, name="ending asks", daemon=True).start()
        return answer.result(ANSWER)
