"""A loop that has each complete checkpoint of a training run evaluated once.

A checkpoint that is still being copied, or was cut short, is looked at again later. Nothing is loaded here. Every
evaluation is a process of its own: its memory is given back, and what kills it kills nothing else.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json
from uni_train.run_folder import RunCheckpoint, run_checkpoints

STATE = "watch.json"
ATTEMPTS = 3
_LAST_LINES = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an evaluation ended: 0 is success; `message` is what it said last where it failed."""

    code: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the loop did.

    kind: "found", "done", "failed" (to be tried again), "given up", or "gone". Training removes older steps, and those
    of a finished stage; these are gone.
    """

    kind: str
    checkpoint: RunCheckpoint
    message: str = ""


def watch(
    run: Path,
    folder: Path,
    evaluate: Callable[[RunCheckpoint], Outcome],
    *,
    once: bool = False,
    poll: float = 30.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Evaluate every complete checkpoint of `run` once, newest first, and tell what happened.

    What is finished is noted in `folder`/watch.json, so that a watch that was killed goes on where it was; an
    evaluation that it was killed in is started again and continues by itself. A failed one is tried again at later
    looks, ATTEMPTS times in all. With `once` it ends when nothing is left to do, without trying again; else it looks
    every `poll` seconds for as long as it is iterated.

    Raises:
        UserError: `run` is no run folder, or watch.json is damaged. OSError: it cannot be written.
    """
    state = _State(folder / STATE)
    tried: set[str] = set()
    while True:
        waiting = [
            checkpoint
            for checkpoint in reversed(run_checkpoints(run))
            if not state.finished(checkpoint) and checkpoint.key not in tried
        ]
        if waiting:
            checkpoint = waiting[0]  # the newest first: it is what a person is waiting for
            tried.add(checkpoint.key)
            yield Event("found", checkpoint)
            outcome = evaluate(checkpoint)
            if outcome.code and not checkpoint.path.exists():
                yield Event("gone", checkpoint)
                continue
            state.note(checkpoint, outcome)
            kind = "done" if outcome.code == 0 else "given up" if state.finished(checkpoint) else "failed"
            yield Event(kind, checkpoint, outcome.message)
            continue  # look at once: training may have saved another one meanwhile
        if once:
            return
        sleep(poll)
        tried.clear()


def watch_run(
    run: Path,
    folder: Path,
    overrides: Sequence[str],
    show: Callable[[str], object] = print,
    *,
    once: bool = False,
    poll: float = 30.0,
) -> Iterator[Event]:
    """`watch` with each evaluation in a process of its own, below `folder`; one watch a run at a time.

    Args:
        overrides: of the evaluations, as `uni_train eval` takes them, such as "subset=60".
        show: is given the lines that the evaluations print.

    Raises:
        UserError: another watch is at work; whatever `watch` raises.
    """
    run_checkpoints(run)  # whether it is a run at all, before anything is written there
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".watch.lock").acquire(timeout=0):
            yield from watch(
                run, folder, lambda checkpoint: evaluate(checkpoint, folder, overrides, show), once=once, poll=poll
            )
    except Timeout:
        raise UserError(f"another watch is at work on {run}", "Stop it, or give this one another out.") from None


def evaluate(
    checkpoint: RunCheckpoint, folder: Path, overrides: Sequence[str], show: Callable[[str], object]
) -> Outcome:
    """`uni_train eval` in a process of its own; `show` is given the lines that it prints.

    Waits for one that a killed watch has left running: a child inherits the lock and holds it for as long as it lives.
    """
    command = [sys.executable, "-m", "uni_train", "eval", "--checkpoint", str(checkpoint.path), *overrides]
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with open(folder / ".evaluating", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(lock.fileno(),),
        ) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    show(line.rstrip())
                    last.append(line.strip())
                code = child.wait()
            except BaseException:
                child.terminate()  # it continues by itself at the next start
                raise
    errors = [line.removeprefix("error: ") for line in last if line.startswith("error: ")]
    return Outcome(code, "" if code == 0 else (errors or [*last] or [f"it ended with {code}"])[-1])


class _State:
    """watch.json: checkpoint -> how often it was tried, and whether that succeeded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, dict[str, Any]] = {}
        try:
            self._found = dict(read_json(path)["checkpoints"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "Delete it: checkpoints that have an evaluation are only looked up again."
            raise UserError(f"{path}: cannot be read ({error})", hint) from error

    def finished(self, checkpoint: RunCheckpoint) -> bool:
        entry = self._found.get(checkpoint.key)
        return entry is not None and (entry["code"] == 0 or entry["attempts"] >= ATTEMPTS)

    def note(self, checkpoint: RunCheckpoint, outcome: Outcome) -> None:
        earlier = int(self._found.get(checkpoint.key, {}).get("attempts", 0))
        self._found[checkpoint.key] = {
            "name": checkpoint.name,
            "updates": checkpoint.updates,
            "attempts": earlier + 1,
            "code": outcome.code,
            "message": outcome.message,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(self._path, {"checkpoints": self._found})
