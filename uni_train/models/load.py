"""From a model's configuration to the model, and its weights to and from a folder of safetensors + JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from uni_train.config.schema import ModelConfig
from uni_train.errors import UserError
from uni_train.files import atomic_path, atomic_write_json
from uni_train.models.base import UnifiedModel

WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def build_model(config: ModelConfig, seed: int = 0) -> UnifiedModel:
    """The model of a recipe, with the weights that its `checkpoint` names (null: random ones from `seed`).

    Raises:
        UserError: weights that are missing, damaged or of another shape; a family that cannot be built here.
    """
    if config.name != "nano":
        raise UserError(
            f"model={config.name} composes, but this version cannot read its published checkpoint yet",
            "Run with model=nano; see docs/models.md for what is supported.",
        )
    from uni_train.models.nano import nano

    model = nano.build(config, seed)
    if config.checkpoint == "shipped":
        load_weights(model, nano.shipped())
    elif config.checkpoint is not None:
        load_weights(model, Path(config.checkpoint))
    return model.eval()


def save_model(model: UnifiedModel, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write `model.safetensors` and `config.json`, each atomically; `dtype` converts floating-point weights.

    Raises:
        UserError, OSError: the disk is full or the folder cannot be written; an older checkpoint there is untouched.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = {
        name: (value.to(dtype) if dtype is not None and value.is_floating_point() else value).detach().contiguous()
        for name, value in model.state_dict().items()
    }
    try:
        with atomic_path(folder / WEIGHTS) as temporary:
            save_file(state, temporary)
            temporary.chmod(0o644)  # safetensors leaves it readable to its owner alone
    except SafetensorError as error:  # its own kind of OSError
        raise UserError(
            f"cannot write {folder / WEIGHTS} ({error})",
            "Make room there; what was finished is kept, so run the command again.",
        ) from error
    atomic_write_json(folder / CONFIG, {"model": model.name, **model.describe()})


def load_weights(model: UnifiedModel, folder: Path) -> None:
    """Load what `save_model` wrote into a model of the same sizes.

    Raises:
        UserError: a missing or damaged file, or tensors that do not fit (at most ten are named).
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / WEIGHTS
    if not file.is_file():
        raise UserError(f"{folder} holds no {WEIGHTS}", "Give a folder that a run has written, e.g. runs/.../model.")
    try:
        state = load_file(file)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file} is damaged ({error})", "Copy it again, or make it anew.") from error
    _check(model.state_dict(), state, file)
    model.load_state_dict(state)


def _check(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], file: Path) -> None:
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [f"{name} is not part of the model" for name in found if name not in wanted]
    problems += [
        f"{name} has shape {list(found[name].shape)}, not {list(wanted[name].shape)}"
        for name in wanted
        if name in found and found[name].shape != wanted[name].shape
    ]
    if problems:
        more = f" (and {len(problems) - 10} more)" if len(problems) > 10 else ""
        raise UserError(f"{file} does not fit the model: {'; '.join(problems[:10])}{more}", "Check model=...")
