"""From a model's configuration to the model, and its weights to and from a folder of safetensors + JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from data_gen.reading_limits import read_yaml
from uni_train.config import places
from uni_train.config.schema import ModelConfig
from uni_train.errors import UserError
from uni_train.files import atomic_write_json
from uni_train.models.base import UnifiedModel
from uni_train.models.recognise import recognise
from uni_train.models.weights import Weights, check, write

WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def build_model(config: ModelConfig, seed: int = 0, dtype: torch.dtype | None = None) -> UnifiedModel:
    """The model of a recipe, with the weights that its `checkpoint` names (null: random ones from `seed`, nano only).

    Args:
        dtype: of the weights; None: as stored (BAGEL, Qwen-Image-Edit), float32 (nano).

    Raises:
        UserError: weights that are missing, damaged or of another shape; a folder that is something else.
    """
    if config.family == "qwen_image_edit":
        from uni_train.models.qwen_image_edit import checkpoint as editor

        if config.checkpoint is not None:
            _expect("qwen_image_edit", Path(config.checkpoint), config.name)
        return editor.build(config, dtype).eval()
    if config.name not in ("nano", "nano_edit"):
        from uni_train.models.bagel import checkpoint

        if config.checkpoint is not None:
            _expect("bagel", Path(config.checkpoint), config.name)
        return checkpoint.build(config, dtype).eval()
    from uni_train.models.nano import edit, nano

    model = edit.build(config, seed) if config.name == "nano_edit" else nano.build(config, seed)
    if config.checkpoint == "shipped":
        load_weights(model, nano.shipped())
    elif config.checkpoint is not None:
        load_weights(model, Path(config.checkpoint))
    return (model if dtype is None else model.to(dtype)).eval()


def model_config(name_or_path: str) -> ModelConfig:
    """The configuration of a model by its name (`uni_train models`), or of the checkpoint at a path.

    "shipped" is nano with the weights inside the package.
    A path may be a BAGEL folder or one weight file in it, a Qwen-Image-Edit as diffusers stores it, a folder that a
    stage has written, or a run's folder (then its last finished model is meant). Of a model that a run has trained, the
    run's own settings are taken.

    Raises:
        UserError: what lies there cannot be loaded. UsageError: no such name.
    """
    from uni_train.config.build import build
    from uni_train.config.compose import compose

    name_or_path = "nano" if name_or_path == "shipped" else name_or_path
    if name_or_path in [option.name for option in places.options("model")]:
        return compose("sft", [f"model={name_or_path}"]).model
    found = recognise(Path(name_or_path))
    if found.kind == "other":
        raise UserError(f"{name_or_path} is {found.what}, not a model that can be loaded", found.hint)
    run = found.path.parent.parent.parent
    if (run / "config.yaml").is_file():
        config = build(read_yaml(run / "config.yaml")).model
    else:
        config = compose("sft", [f"model={found.model}"]).model
    return replace(config, checkpoint=str(found.path))


def save_model(model: UnifiedModel, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write a folder that `build_model` and `load_weights` read; `dtype` converts floating-point weights.

    nano: `model.safetensors` and `config.json`. BAGEL: the official layout, with the autoencoder and the tokenizer of
    the folder it came from. Qwen-Image-Edit: diffusers' layout, with all other parts of that folder. Each file is
    written atomically.

    Raises:
        UserError, OSError: the disk is full or the folder cannot be written; an older checkpoint there is untouched.
    """
    from uni_train.models.bagel.checkpoint import PublishedBagel, save

    if isinstance(model, PublishedBagel):
        save(model, folder, dtype)
        return
    if _family(model) == "qwen_image_edit":
        from uni_train.models.qwen_image_edit import checkpoint as editor

        editor.save(cast("editor.PublishedEditor", model), folder, dtype)
        return
    folder.mkdir(parents=True, exist_ok=True)
    state = model.state_dict()
    tensors = {
        name: (dtype if dtype is not None and value.is_floating_point() else value.dtype, tuple(value.shape))
        for name, value in state.items()
    }
    write(folder / WEIGHTS, tensors, lambda name: state[name].detach())
    atomic_write_json(folder / CONFIG, {"model": model.name, **model.describe()})


def load_weights(model: UnifiedModel, folder: Path) -> None:
    """Load what `save_model` wrote into a model of the same sizes.

    Raises:
        UserError: a missing or damaged file, or tensors that do not fit (at most ten are named).
    """
    from uni_train.models.bagel.checkpoint import PublishedBagel, load

    if isinstance(model, PublishedBagel):
        _expect("bagel", folder, model.name)
        load(model, folder)
        return
    if _family(model) == "qwen_image_edit":
        from uni_train.models.qwen_image_edit import checkpoint as editor

        _expect("qwen_image_edit", folder, model.name)
        editor.load(cast("editor.PublishedEditor", model), folder)
        return
    file = folder / WEIGHTS
    if not file.is_file():
        raise UserError(f"{folder} holds no {WEIGHTS}", "Give a folder that a run has written, e.g. runs/.../model.")
    stored = Weights([file])
    own = model.state_dict()
    check(stored.shapes, {name: tuple(value.shape) for name, value in own.items()}, str(file), "Check model=...")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(stored.read(name))


def _family(model: UnifiedModel) -> str:
    """Whose code a model is, told without importing it: diffusers takes seconds, and most runs do without."""
    return type(model).__module__.removeprefix("uni_train.models.").split(".")[0]


def _expect(kind: str, path: Path, name: str) -> None:
    """Raises UserError if a path holds another kind of model, saying which."""
    found = recognise(path)
    if found.kind != kind:
        raise UserError(
            f"model={name} cannot be loaded from {path}: it is {found.what}",
            found.hint or f"Choose model={found.model}, or another model.checkpoint=FOLDER.",
        )
