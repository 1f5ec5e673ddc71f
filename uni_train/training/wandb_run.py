"""A Weights & Biases logger that continues one run across resumes and works without a network or a key."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.errors import UserError

if TYPE_CHECKING:
    from lightning.pytorch.loggers import WandbLogger

RUN_FILE = "wandb.json"


def wandb_logger(
    directory: Path,
    *,
    project: str = "uni_train",
    name: str | None = None,
    group: str | None = None,
    config: Mapping[str, Any] | None = None,
    offline: bool | None = None,
) -> WandbLogger:
    """The logger of the run in `directory`; the run's id is kept in `directory/wandb.json`.

    offline: None means offline unless WANDB_API_KEY is set. Updates that a killed run repeats are logged twice, under
    the same `trainer/global_step`.

    Raises:
        UserError: wandb is not installed, or the id file is damaged.
    """
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb: wandb is not installed", 'pip install "uni-train[wandb]"') from error
    from lightning.pytorch.loggers import WandbLogger

    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / RUN_FILE
    try:
        run_id = str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        run_id = uuid.uuid4().hex[:8]
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(json.dumps({"id": run_id}) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} does not hold a run id ({error})", "Delete it; a new W&B run begins.") from error
    return WandbLogger(
        project=project,
        name=name,
        group=group,
        id=run_id,
        resume="allow",
        save_dir=str(directory),
        offline=not os.environ.get("WANDB_API_KEY") if offline is None else offline,
        config=dict(config or {}),
        settings=wandb.Settings(silent=True, console="off"),
    )
