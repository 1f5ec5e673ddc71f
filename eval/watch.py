"""Which complete checkpoints a training run has, and a loop that has each of them evaluated once.

    stages/<NN>-<stage>/model   the model of a finished stage, once its manifest is there
    checkpoints/step=<N>        what a stage saves while it trains, removed when it is finished

A checkpoint that is still being copied, or was cut short, is looked at again later. Nothing is loaded here. Every
evaluation is a process of its own: its memory is given back, and what kills it kills nothing else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import read_json
from uni_train.errors import UserError
from uni_train.files import atomic_write_json
from uni_train.run_folder import stage_folders

STATE = "watch.json"
ATTEMPTS = 3
_STEP = re.compile(r"step=(\d{8,})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint of a run.

    path: what `uni_train eval --checkpoint` takes. run: the run's folder. stage: "05-finetune-mapping1". step: updates
    within the stage. updates: since the run began, earlier stages included: the place on a curve over the whole run.
    key: tells it from one that is written later under the same path.
    """

    path: Path
    run: Path
    stage: str
    step: int
    updates: int
    key: str

    @property
    def name(self) -> str:
        """ "05-finetune-mapping1" for a stage's model, "05-finetune-mapping1-step100" for a step of it."""
        return self.stage if self.path.name == "model" else f"{self.stage}-step{self.step}"


def checkpoints(run: Path) -> list[Checkpoint]:
    """The complete checkpoints of a run's folder, in the order in which training reached them.

    A stage's last step and its finished model hold the same weights: the model is listed, for the moment in which both
    are there. Raises UserError where `run`
    is no run folder.
    """
    run = Path(run)
    if not (run / "config.yaml").is_file():
        raise UserError(f"{run} is no run folder: it has no config.yaml", "Run folders are runs/<recipe>/<name>.")
    complete: list[Checkpoint] = []
    before = 0
    for stage in stage_folders(run):
        manifest = _finished(stage)
        updates = 0 if manifest is None else int(manifest["result"].get("updates", 0))
        steps = [(int(match[1]), path) for path in stage.glob("checkpoints/*") if (match := _STEP.fullmatch(path.name))]
        for step, path in sorted(steps):
            digest = _complete(path)
            if digest is not None and not (manifest is not None and step == updates):
                complete.append(Checkpoint(path, run, stage.name, step, before + step, f"{stage.name}/{step}@{digest}"))
        if manifest is not None and (stage / "model").is_dir():
            key = f"{stage.name}/model@{manifest['key']}"
            complete.append(Checkpoint(stage / "model", run, stage.name, updates, before + updates, key))
        before += updates
    return complete


def place_of(path: Path) -> Checkpoint | None:
    """The run's checkpoint that a path is, or None for a model that lies elsewhere.

    A run's folder stands for its newest complete checkpoint of a finished stage, as it does for `uni_train generate`.
    """
    path = Path(path).resolve()
    if (path / "config.yaml").is_file() and (path / "stages").is_dir():
        models = [one for one in checkpoints(path) if one.path.name == "model"]
        return models[-1] if models else None
    for run in path.parents:
        if (run / "config.yaml").is_file() and (run / "stages").is_dir():
            return next((one for one in checkpoints(run) if one.path.resolve() == path), None)
    return None


def _finished(stage: Path) -> Mapping[str, Any] | None:
    """A stage's manifest, if every file that it names is there in full."""
    try:
        manifest = read_json(stage / "manifest.json")
        whole = all((stage / one["path"]).stat().st_size == one["bytes"] for one in manifest["outputs"])
        return manifest if whole and "key" in manifest and isinstance(manifest["result"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _complete(path: Path) -> str | None:
    """The checksum of a step's tensors if both of its files are there in full; the evaluation verifies the content."""
    try:
        stored = read_json(path / "state.json")["tensors"]
        whole = (path / stored["file"]).stat().st_size == stored["bytes"]
        return str(stored["sha256"])[:16] if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


# --- the loop -------------------------------------------------------------------------------------------------------


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
    checkpoint: Checkpoint
    message: str = ""


def watch(
    run: Path,
    folder: Path,
    evaluate: Callable[[Checkpoint], Outcome],
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
            for checkpoint in reversed(checkpoints(run))
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

    def finished(self, checkpoint: Checkpoint) -> bool:
        entry = self._found.get(checkpoint.key)
        return entry is not None and (entry["code"] == 0 or entry["attempts"] >= ATTEMPTS)

    def note(self, checkpoint: Checkpoint, outcome: Outcome) -> None:
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
