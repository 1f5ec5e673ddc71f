"""A step of an unfinished stage, runs/<recipe>/<name>/stages/<stage>/checkpoints/step=<N> (or alarm=<N>), as a model.

It holds what training needs to go on: the weights that are trained, their averages, the optimizer. What is not trained
is where the stage began: in the model of the stage before it, or in the recipe's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from uni_train.config.kinds import stage_list
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UserError
from uni_train.run_folder import ALARM, STEP, is_run, stage_folders, stored_config

if TYPE_CHECKING:
    from torch import nn

_WEIGHTS = ("state_dict/model.", "callbacks/Ema/averages/model.")  # the averages count where there are any
_DOWN, _UP = ".lora_A.default.weight", ".lora_B.default.weight"


def is_step(path: Path) -> bool:
    """Whether a path is the checkpoint of a training, in its run's folder."""
    named = STEP.fullmatch(path.name) or ALARM.fullmatch(path.name)
    return named is not None and len(path.parts) > 4 and is_run(run_of(path))


def run_of(step: Path) -> Path:
    """The run's folder."""
    return step.parents[3]


def run_config(step: Path) -> RunConfig:
    """What the run was asked. Raises UserError where its config.yaml cannot be read."""
    return stored_config(run_of(step))


def model_before(step: Path) -> Path | None:
    """The model that the stage began with: that of the last finished one before it that others start from.

    None: the recipe's own.
    """
    bases = {stage.name for stage in stage_list(run_config(step)) if stage.base}
    stage, stages = step.parent.parent, stage_folders(run_of(step))
    earlier = [before for before in stages[: stages.index(stage)] if before.name.partition("-")[2] in bases]
    models = [before / "model" for before in earlier if (before / "manifest.json").is_file()]
    return next((model for model in reversed(models) if model.is_dir()), None)


def put_weights(model: nn.Module, step: Path) -> None:
    """Give the model that a stage began with the weights that its training would end with; adapters are merged.

    Raises:
        UserError: the checkpoint is damaged or does not fit the model.
    """
    from torch import nn

    from uni_train.models.adapters import add
    from uni_train.models.parts import open_tensors, verify, whole

    stored = open_tensors(step, verify(step))
    tensors = {
        name.removeprefix(prefix): whole(value)
        for prefix in _WEIGHTS
        for name, value in stored.items()
        if name.startswith(prefix)
    }
    modules = dict(model.named_modules())
    plain = {name: value for name, value in tensors.items() if not name.endswith((_DOWN, _UP))}
    unknown = next((name for name in plain if name not in model.state_dict()), None)
    if unknown is None:
        unknown = next((n for n in tensors if n.endswith(_DOWN) and n.removesuffix(_DOWN) not in modules), None)
    try:
        if unknown is not None:
            raise ValueError(f"{unknown} is not part of it")
        model.load_state_dict(plain, strict=False)
    except (RuntimeError, ValueError) as error:
        why = str(error).splitlines()[-1].strip()
        raise UserError(f"the checkpoint {step} does not fit the model of its run's config.yaml", why) from error
    lora = run_config(step).lora
    for name, down in tensors.items():
        if name.endswith(_DOWN):
            layer = modules[name.removesuffix(_DOWN)]
            assert isinstance(layer, nn.Linear)
            add(layer, down, tensors[name.removesuffix(_DOWN) + _UP], lora.alpha / lora.rank)
