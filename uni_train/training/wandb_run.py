"""One Weights & Biases run per run folder: the same across stages and resumes, and fine without a network or a key.

The run's id is kept in `wandb.json` in the folder. Updates that a killed run repeats are logged twice, under the same
`trainer/global_step`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json, reason

if TYPE_CHECKING:
    from lightning.pytorch.loggers import WandbLogger
    from wandb.sdk.wandb_run import Run

RUN_FILE = "wandb.json"
Mode = Literal["online", "offline", "disabled", "shared"]


def wandb_logger(directory: Path, *, prefix: str = "", **about: Any) -> WandbLogger:
    """A Lightning logger into the run of `directory`.

    Args:
        prefix: put before each metric's name with a dash, so that several stages of a run keep their curves apart.
        about: project, name, group, config and offline, as `wandb.init` takes them. offline=None leaves it to
            WANDB_MODE; without that, offline unless WANDB_API_KEY is set.

    Raises:
        UserError: wandb is not installed, or the id file is damaged.
    """
    run = _begin(directory, **about)
    from lightning.pytorch.loggers import WandbLogger

    return WandbLogger(experiment=run, save_dir=str(directory), prefix=prefix)


@contextmanager
def open_run(directory: Path, **about: Any) -> Iterator[Run]:
    """The run of `directory`, to log more than Lightning does; finished when the block ends. Arguments and errors as
    `wandb_logger`."""
    run = _begin(directory, **about)
    try:
        yield run
    finally:
        run.finish()


def group_of(group: str | None, run: Path) -> str:
    """The group of a run's folder and of all evaluations of its checkpoints: the one it names, else <recipe>/<name>."""
    run = Path(run).resolve()
    return group or f"{run.parent.name}/{run.name}"


def offline_folders(directory: Path) -> list[Path]:
    """What `wandb sync` can upload: the folders that W&B has written below `directory` while offline."""
    return sorted(Path(directory).glob("wandb/offline-run-*"))


def run_id(directory: Path) -> str:
    """The id of the W&B run of `directory`, made up and written down the first time.

    Raises:
        UserError: `wandb.json` is damaged or cannot be written.
    """
    path = Path(directory) / RUN_FILE
    try:
        return str(read_json(path)["id"])
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not hold a run id ({reason(error)})", "Delete it; a new W&B run begins."
        ) from error
    fresh = uuid.uuid4().hex[:8]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(path, {"id": fresh})
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return fresh


def wandb_mode(offline: bool | None, environment: Mapping[str, str] = os.environ) -> Mode:
    """What `wandb.init` is to do: as the recipe says, else as WANDB_MODE says, else online if there is a key.

    Raises:
        UserError: WANDB_MODE is none of wandb's modes.
    """
    if offline is not None:
        return "offline" if offline else "online"
    mode = environment.get("WANDB_MODE")
    if not mode:
        return "online" if environment.get("WANDB_API_KEY") else "offline"
    mode = {"dryrun": "offline", "run": "online"}.get(mode, mode)  # as it was spelled once
    if mode not in get_args(Mode):
        raise UserError(f"WANDB_MODE is {mode}", f"Known: {', '.join(get_args(Mode))}.")
    return cast(Mode, mode)


def _begin(
    directory: Path,
    *,
    project: str = "uni_train",
    name: str | None = None,
    group: str | None = None,
    config: Mapping[str, Any] | None = None,
    offline: bool | None = None,
) -> Run:
    """Open the run, or take the one that this process has open already."""
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb: wandb is not installed", "pip install -e '.[wandb]'") from error
    identity = run_id(directory)
    if wandb.run is not None:
        if wandb.run.id == identity:
            return wandb.run
        wandb.run.finish()
    try:
        return wandb.init(
            id=identity,
            resume="allow",
            mode=wandb_mode(offline),
            dir=str(directory),
            config=dict(config or {}),
            settings=wandb.Settings(silent=True, console="off"),
            project=project,
            name=name,
            group=group,
        )
    except wandb.errors.Error as error:
        hint = "Mend it, or log without a network: logger=wandb logger.offline=true, and later `wandb sync`."
        raise UserError(f"logger=wandb: {error}", hint) from error
