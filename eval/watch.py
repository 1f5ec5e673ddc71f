"""A loop that has each complete checkpoint of a training run evaluated once.

A checkpoint that is still being copied, or was cut short, is looked at again later. Nothing is loaded here. Every
evaluation is a process of its own: its memory is given back, and what kills it kills nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import read_json
from uni_train.errors import UserError
from uni_train.files import atomic_write_json
from uni_train.run_folder import RunCheckpoint, run_checkpoints

STATE = "watch.json"
ATTEMPTS = 3


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
