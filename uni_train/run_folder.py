"""runs/<recipe>/<name>/: what one run was asked, what it has finished, and the lock that keeps a second process out.

    config.yaml    the composed recipe, written once; the same command continues, another one is refused
    run.json       every start: time, command, git state, versions
    stages/<NN>-<stage>/manifest.json
                   written last, so a stage with a manifest is finished; names its output files and their hashes
    stages/<NN>-<stage>/model
                   what a finished stage has trained
    stages/<NN>-<stage>/checkpoints/step=<N>
                   what a stage saves while it trains, removed when it is finished

A killed process leaves no lock behind: the operating system drops it with the process.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from uni_train.config.build import adapter, build, to_plain
from uni_train.config.kinds import plugins_of
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json, atomic_write_text, remove_partials, sha256_of
from uni_train.core.reading_limits import read_json, read_yaml, reason
from uni_train.core.registry import PluginError, expect_named

if TYPE_CHECKING:
    from filelock import BaseFileLock

# Where a run is written, its name, who watches it, who shares the work, what is kept of it or measured afterwards: they
# change no number (but by rounding), so they may differ between starts. The last: an error's hint, followed on resume.
FREE_KEYS = ("name", "out", "logger", "strategy", "keep_state", "retention", "data.bad_rows")
KEPT_KEYS = ("strategy.precision",)

STEP = re.compile(r"step=(\d{8,})")
ALARM = re.compile(r"alarm=\d{8,}")  # which no training continues from
"""Names of the checkpoints that a stage saves while it trains; group 1: updates."""
EXTENSION = re.compile(r".*-from-(\d+)")
"""Names of stages that continue an earlier training; group 1: its updates, which their checkpoints count too."""
_CLOCK = ".clock.json"  # in a stage's folder until it has a manifest
_VERSIONS_OF = ("unified-train", "torch", "lightning", "numpy", "safetensors", "pyarrow", "hydra-core", "wandb")


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a stage has written, relative to the stage's folder."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A finished stage. `key` is the hash of what went into it (`stage_key`), `seconds` its time over all starts,
    `result` its numbers."""

    stage: str
    key: str
    seconds: float
    outputs: tuple[Output, ...]
    result: Mapping[str, Any]


def decisive(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration that decides a run's numbers, by dotted keys."""
    return {key: value for key, value in flat(plain).items() if not _free(key)}


def _free(key: str) -> bool:
    return (key in FREE_KEYS or key.split(".")[0] in FREE_KEYS) and key not in KEPT_KEYS


def stage_key(**inputs: Any) -> str:
    """A hash of a stage's inputs (JSON-able: settings, hashes of files, names), the same in every process."""
    text = json.dumps(inputs, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class RunFolder:
    """One run's folder, locked for this process while open.

    >>> with RunFolder("runs", "stars_curriculum", "seed0") as run:
    ...     run.begin(config, argv=sys.argv)
    ...     if run.read_manifest(0, "evaluate") is None:
    ...         ...  # write files into run.stage_dir(0, "evaluate")
    ...         run.write_manifest(0, "evaluate", key=key, seconds=s, outputs=["shards/00000.parquet"], result={})
    """

    def __init__(self, root: str | Path, recipe: str, name: str) -> None:
        self.root = Path(root)
        self.recipe = recipe
        self.name = name
        self.path = self.root / recipe / name
        self.key = ""  # of what was asked, from which the keys of stages follow; `begin` sets it
        self._lock: BaseFileLock | None = None

    @classmethod
    def fresh(cls, root: str | Path, recipe: str, name: str) -> RunFolder:
        """A folder that does not exist yet: `name`, or name-2, name-3, ..."""
        candidate, number = cls(root, recipe, name), 1
        while candidate.path.exists():
            number += 1
            candidate = cls(root, recipe, f"{name}-{number}")
        return candidate

    # --- opening ------------------------------------------------------------------------------------------------

    def open(self) -> RunFolder:
        """Create the folder, lock it and remove files that a killed process has left half written.

        Raises UserError if it cannot be written or another process has it.
        """
        from filelock import FileLock, Timeout

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=0)
        except Timeout:
            message = f"run folder {self.path} is in use {self._owner()}"
            raise UserError(message, "Wait for it, or give this run another name=...") from None
        except OSError as error:
            raise UserError(
                f"cannot write to the run folder {self.path}: {error.strerror or error}",
                "Choose another place with out=FOLDER.",
            ) from error
        self._lock = lock
        try:
            remove_partials(self.path)
            atomic_write_json(self.path / ".owner.json", {"pid": os.getpid(), "since": _now()})
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self if self._lock is not None else self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _owner(self) -> str:
        try:
            owner = read_json(self.path / ".owner.json")
            return f"by pid {owner['pid']} since {owner['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "by another process"

    # --- what was asked -----------------------------------------------------------------------------------------

    def begin(self, config: RunConfig, argv: Sequence[str] = ()) -> bool:
        """Write config.yaml, or compare with the one there; note this start in run.json. True if the run continues.

        A run that has no finished stage, checkpoint or samples is replaced by one asked otherwise.
        Raises UserError if the folder holds a run with another configuration, or a damaged one.
        """
        import yaml

        file = self.path / "config.yaml"
        continues = file.exists() and self._has_written() and self._compare(config)
        if not continues:
            text = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True, width=100)
            atomic_write_text(file, text)
        self.key = stage_key(config=decisive(read_yaml(file)))
        self._note_start(argv)
        return continues

    def _has_written(self) -> bool:
        stages = self.path / "stages"
        return any(entry.is_file() and entry.name != _CLOCK for entry in stages.rglob("*"))

    def _compare(self, config: RunConfig) -> bool:
        """True: the same. False: another, and what little there is of the old run is removed. Else UserError."""
        before, now = (decisive(to_plain(version)) for version in (stored_config(self.path), config))
        absent = "(absent)"
        changed = [key for key in dict.fromkeys([*now, *before]) if before.get(key, absent) != now.get(key, absent)]
        stages = self.path / "stages"
        work = ("*/manifest.json", "**/checkpoints/*/state.json", "**/*.parquet")
        if changed and not any(file for pattern in work for file in stages.glob(pattern)):
            shutil.rmtree(stages)
            return False
        if "model.name" in changed:  # it explains the others
            changed = ["model.name"]
        if changed:
            pairs = [(key, before.get(key, absent), now.get(key, absent)) for key in changed[:3]]
            shown = "; ".join(f"{key} was {was}, now {value}" for key, was, value in pairs)
            more = f"; and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise UserError(
                f"run folder {self.path} holds a run with another configuration: {shown}{more}",
                "Give the same overrides to continue it; name=... or --fresh to start another run beside it."
                + self._going_on(pairs),
            )
        return True

    def _going_on(self, changed: Sequence[tuple[str, Any, Any]]) -> str:
        """What to add to the command so that a run beside this one goes on from its model; empty: it has none."""
        if changed[0][0] == "model.name" or not any(self.path.glob("stages/*/model")):
            return ""
        words = [f"name={RunFolder.fresh(self.root, self.recipe, self.name).name}", f"model.checkpoint={self.path}"]
        if len(changed) == 1 and changed[0][0] in ("updates", "epochs") and changed[0][2] > changed[0][1]:
            words.append(f"{changed[0][0]}={changed[0][2] - changed[0][1]}")
        return f" To train its model further, by a schedule that starts anew, add: {shlex.join(words)}"

    def _note_start(self, argv: Sequence[str]) -> None:
        file = self.path / "run.json"
        starts: list[Any] = []
        if file.exists():
            remedy = "Delete it: the run itself does not need it."
            starts = _read_json(file, remedy).get("starts", [])
            if not isinstance(starts, list):
                raise UserError(f"{file} is damaged: its starts are no list", remedy)
        starts.append(
            {
                "time": _now(),
                "command": list(argv),
                "host": platform.node(),
                "pid": os.getpid(),
                "git": git_state(),
                "versions": versions(),
            }
        )
        atomic_write_json(file, {"recipe": self.recipe, "name": self.name, "starts": starts})

    # --- stages -------------------------------------------------------------------------------------------------

    def stage_dir(self, index: int, name: str) -> Path:
        """stages/<NN>-<name>/, created if missing."""
        path = self._stage_path(index, name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def start_clock(self, index: int, name: str) -> float:
        """Note that a stage starts now; returns the seconds of its earlier starts.

        An earlier start that was killed counts until the last file that it wrote: what it did after that is lost, too.
        """
        folder = self.stage_dir(index, name)
        file = folder / _CLOCK
        earlier = 0.0
        if file.exists():
            clock = _read_json(file, "Delete it: only the time of this stage is lost.")
            last = max(entry.stat().st_mtime for entry in folder.rglob("*") if entry.is_file())
            earlier = float(clock.get("seconds", 0.0)) + max(last - float(clock.get("began", last)), 0.0)
        atomic_write_json(file, {"seconds": earlier, "began": time.time()})
        return earlier

    def _stage_path(self, index: int, name: str) -> Path:
        return self.path / "stages" / f"{index:02d}-{name}"

    def read_manifest(self, index: int, name: str, key: str | None = None) -> Manifest | None:
        """The manifest of a finished stage, its output files checked, or None if the stage is not finished.

        Raises:
            UserError: names the file. The manifest is damaged, an output is missing or was changed, or the stage has
                other inputs than `key`.
        """
        folder = self._stage_path(index, name)
        file = folder / "manifest.json"
        if not file.exists():
            return None
        remedy = f"Delete the folder {folder} to redo this stage, or start over with --fresh."
        manifest = _parse_manifest(file, _read_json(file, remedy), remedy)
        for output in manifest.outputs:
            path = folder / output.path
            if not path.is_file():
                raise UserError(f"{path} is missing, though {file} names it", remedy)
            if path.stat().st_size != output.bytes or sha256_of(path) != output.sha256:
                raise UserError(f"{path} is damaged: its content is not what {file} recorded", remedy)
        if key is not None and manifest.key != key:
            raise UserError(f"{folder} was made from other inputs than this run has now", remedy)
        return manifest

    def write_manifest(
        self,
        index: int,
        name: str,
        *,
        key: str,
        seconds: float,
        outputs: Iterable[str | Path] = (),
        result: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Declare a stage finished. `outputs` are paths of files below the stage's folder, relative to it or not."""
        folder = self.stage_dir(index, name)
        listed = []
        for given in outputs:
            path = folder / given
            relative = path.relative_to(folder).as_posix()
            listed.append(Output(relative, sha256_of(path), path.stat().st_size))
        manifest = Manifest(name, key, seconds, tuple(listed), dict(result or {}))
        atomic_write_json(folder / "manifest.json", {"status": "done", **asdict(manifest)})
        (folder / _CLOCK).unlink(missing_ok=True)
        return manifest


def stage_folders(run: Path) -> list[Path]:
    """The folders of a run's stages in the order of their numbers: by name, 100-... would come before 99-..."""

    def place(folder: Path) -> tuple[int, str]:
        number = folder.name.partition("-")[0]
        return int(number) if number.isdigit() else -1, folder.name

    return sorted((Path(run) / "stages").glob("*/"), key=place)


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """{"a": {"b": [1]}} -> {"a.b.0": 1}; empty sections and lists keep their place."""
    if isinstance(value, Mapping) and value:
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list) and value:
        items = enumerate(value)
    else:
        return {key: value}
    flattened: dict[str, Any] = {}
    for name, item in items:
        flattened.update(flat(item, f"{key}.{name}" if key else str(name)))
    return flattened


def _read_json(file: Path, remedy: str) -> dict[str, Any]:
    try:
        loaded = read_json(file)
    except ValueError:
        loaded = None
    if not isinstance(loaded, dict):
        raise UserError(f"{file} is damaged: it is not a JSON object", remedy)
    return loaded


def _parse_manifest(file: Path, loaded: Mapping[str, Any], remedy: str) -> Manifest:
    fields = {key: value for key, value in loaded.items() if key != "status"}
    try:
        if loaded.get("status") != "done":
            raise ValueError
        manifest: Manifest = adapter(Manifest).validate_python(fields)
        return manifest
    except ValueError:
        raise UserError(f"{file} is damaged: it lacks what a stage's manifest holds", remedy) from None


def stored_config(run: Path) -> RunConfig:
    """What a run was asked; keys that are newer than the run have their defaults.

    Raises UserError where its config.yaml cannot be read, PluginError where it needs code that nobody here has named.
    """
    file = run / "config.yaml"
    try:
        values = read_yaml(file)
        if not isinstance(values, dict):
            raise ValueError("it holds no keys")
        expect_named(plugins_of(values), file)
        return build(values)
    except PluginError:
        raise
    except (OSError, ValueError, UserError) as error:
        why = error.message if isinstance(error, UserError) else reason(error)
        raise UserError(f"{file} is damaged: {why}", "Restore it, or start over with `fit --fresh`.") from error


# --- its checkpoints -----------------------------------------------------------------------------------------------


def is_run(path: Path) -> bool:
    """Whether a folder is a run's."""
    return (path / "config.yaml").is_file() and (path / "stages").is_dir()


def final_model(run: Path) -> Path:
    """The model folder of a run's last finished stage that trained one.

    Raises:
        UserError: no stage has finished with a model yet.
    """
    finished = [stage / "model" for stage in stage_folders(run) if (stage / "manifest.json").is_file()]
    models = [model for model in finished if model.is_dir()]
    if not models:
        raise UserError(
            f"{run} has no finished model yet", "Run its command again to continue it, or give another run."
        )
    return models[-1]


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
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


def run_checkpoints(run: Path) -> list[RunCheckpoint]:
    """The complete checkpoints of a run's folder, in the order in which training reached them.

    A finished model is listed in place of the step whose weights it has: the last one, or `kept_update` of the result.
    Raises UserError where `run` is no run folder.
    """
    run = Path(run)
    if not (run / "config.yaml").is_file():
        raise UserError(f"{run} is no run folder: it has no config.yaml", "Run folders are runs/<recipe>/<name>.")
    complete: list[RunCheckpoint] = []
    before = 0
    for stage in stage_folders(run):
        manifest = _finished(stage)
        updates = 0 if manifest is None else int(manifest["result"].get("updates", 0))
        start = int(match[1]) if (match := EXTENSION.fullmatch(stage.name)) else 0
        kept = start + updates if manifest is None else int(manifest["result"].get("kept_update", start + updates))
        steps = [(int(match[1]), path) for path in stage.glob("checkpoints/*") if (match := STEP.fullmatch(path.name))]
        for step, path in sorted(steps):
            digest, done = _complete(path), before + step - start
            if digest is not None and start < step and not (manifest is not None and step == kept):
                complete.append(RunCheckpoint(path, run, stage.name, step, done, f"{stage.name}/{step}@{digest}"))
        if manifest is not None and (stage / "model").is_dir():
            key = f"{stage.name}/model@{manifest['key']}"
            complete.append(RunCheckpoint(stage / "model", run, stage.name, kept, before + kept - start, key))
        before += updates
    return complete


def place_of(path: Path) -> RunCheckpoint | None:
    """The run's checkpoint that a path is, or None for a model that lies elsewhere.

    A run's folder stands for its newest complete checkpoint of a finished stage, as it does for `uni_train generate`.
    """
    path = Path(path).resolve()
    if is_run(path):
        models = [checkpoint for checkpoint in run_checkpoints(path) if checkpoint.path.name == "model"]
        return models[-1] if models else None
    for run in path.parents:
        if is_run(run):
            return next((checkpoint for checkpoint in run_checkpoints(run) if checkpoint.path.resolve() == path), None)
    return None


def _finished(stage: Path) -> Mapping[str, Any] | None:
    """A stage's manifest, if every file that it names is there in full."""
    try:
        manifest = read_json(stage / "manifest.json")
        whole = all((stage / output["path"]).stat().st_size == output["bytes"] for output in manifest["outputs"])
        return manifest if whole and "key" in manifest and isinstance(manifest["result"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _complete(path: Path) -> str | None:
    """The checksum of a step if all of its files are there in full; the evaluation verifies the content."""
    try:
        state = read_json(path / "state.json")
        whole = all((path / file["name"]).stat().st_size == file["bytes"] for file in state["content"]["files"])
        return str(state["sha256"])[:16] if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


# --- what it ran with ------------------------------------------------------------------------------------------------


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


@cache
def git_state() -> dict[str, Any] | None:
    """Commit and number of changed files of the checkout that this code runs from; None outside of one."""
    here = Path(__file__).resolve().parent
    try:
        _git(here, "ls-files", "--error-unmatch", Path(__file__).name)  # a .venv inside someone else's checkout is none
        commit = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "changed_files": len(changed.splitlines())}


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def versions() -> dict[str, str]:
    """Python's version, the platform, and the versions of the packages that numbers depend on."""
    return {"platform": platform.platform(), **versions_of(_VERSIONS_OF)}


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Python's version and those of the packages that are installed."""
    from importlib import metadata

    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
