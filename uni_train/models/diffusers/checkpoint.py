"""A folder in diffusers' layout to a model: model_index.json names the pipeline's class and its parts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from uni_train.config.schema import ModelConfig
from uni_train.data_gen.reading_limits import reason
from uni_train.errors import UserError
from uni_train.files import atomic_path
from uni_train.models.diffusers.classes import TRANSFORMERS
from uni_train.models.diffusers.flow import FlowModel
from uni_train.models.diffusers.interface import Interface, interface
from uni_train.models.diffusers.unified import DiffusersModel
from uni_train.models.meta import without_weights
from uni_train.models.qwen_image_edit.checkpoint import link_or_copy
from uni_train.models.weights import (
    Start,
    Weights,
    check,
    copy,
    fill,
    read_object,
    shapes_of,
    weight_files,
    write_state,
)

_HINT = "It must be a pipeline in diffusers' layout with safetensors; `uni_train models inspect` shows what it is."
_TRAINED, _STEM, _SHARD_BYTES = "transformer", "diffusion_pytorch_model", 10 * 10**9
_SCHEDULER = "FlowMatchEulerDiscreteScheduler"
_FILES = ("diffusion_pytorch_model.safetensors", "model.safetensors")


def interface_of(folder: Path) -> Interface:
    """The interface of the pipeline in a folder. Raises UserError for a class that cannot be asked."""
    return interface(str(read_object(folder / "model_index.json", _HINT).get("_class_name")))


def open_parts(folder: Path) -> dict[str, Weights]:
    """Headers of the weights by part. Raises UserError for damaged files."""
    parts = [part for part in _parts(folder) if any((folder / part).glob("*.safetensors"))]
    return {part: Weights(weight_files(folder / part, _FILES, _HINT)) for part in parts}


def missing(folder: Path, weights: Mapping[str, Weights]) -> Iterator[str]:
    """Parts that are not there or have no weights, a phrase each."""
    for part in _parts(folder):
        if not (folder / part).is_dir():
            yield f"{part} is missing"
        elif (folder / part / "config.json").is_file() and part not in weights:
            yield f"{part} has no safetensors"


def build(config: ModelConfig, dtype: torch.dtype | None = None) -> DiffusersModel:
    """The pipeline of the folder `config.checkpoint`.

    Args:
        dtype: of all weights; None: the `Weights.compute_dtype` of its largest part.

    Raises:
        UserError: the folder holds something else, or its parts cannot be loaded.
    """
    assert config.checkpoint is not None
    folder = Path(config.checkpoint)
    takes, parts = interface_of(folder), open_parts(folder)
    stored = max(parts.values(), key=lambda weights: weights.bytes).compute_dtype
    try:
        with _without_bars(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch_dtype` is deprecated", FutureWarning)  # dtype is 0.41's name
            pipeline = takes.pipeline.from_pretrained(
                folder, torch_dtype=dtype or stored, use_safetensors=True, local_files_only=True
            )
    except (OSError, ValueError, RuntimeError, ImportError, AttributeError) as error:
        raise UserError(f"{folder} cannot be loaded: {reason(error)}", _HINT) from error
    model = _model(config, pipeline, takes)
    model.source = folder
    return model


def skeleton(config: ModelConfig) -> tuple[DiffusersModel, bool]:
    """The pipeline of the folder `config.checkpoint` without weights. Raises UserError where there is none."""
    folder = Path(config.checkpoint or "")
    if not (folder / "model_index.json").is_file():
        raise UserError(f"model={config.name} has no sizes of its own", "Give a folder with model.checkpoint=FOLDER.")
    takes = interface_of(folder)
    with without_weights():
        parts = {part: _without_weights(folder / part, *names) for part, names in _parts(folder).items()}
    optional = dict.fromkeys(takes.pipeline._optional_components)
    return _model(config, takes.pipeline(**optional | parts), takes), False


def _without_weights(folder: Path, library: str, name: str) -> Any:
    """A part, by library and class as in model_index.json; modules on the meta device."""
    kind = getattr(import_module(library), name)
    if not issubclass(kind, torch.nn.Module):
        return kind.from_pretrained(folder)
    if library == "transformers":
        return kind(kind.config_class.from_pretrained(folder))
    return kind.from_config(kind.load_config(folder))


def _model(config: ModelConfig, pipeline: Any, takes: Interface) -> DiffusersModel:
    if takes.name in TRANSFORMERS and type(pipeline.scheduler).__name__ == _SCHEDULER:
        return FlowModel(config.name, pipeline, takes, config.sampling, config.architecture.image_size)
    return DiffusersModel(config.name, pipeline, takes, config.sampling)


def image_size(folder: Path) -> int:
    """Pixels a side of what a pipeline of `TRANSFORMERS` draws by default."""
    vae, transformer = (read_object(folder / part / "config.json", _HINT) for part in ("vae", "transformer"))
    halvings = len(vae["block_out_channels"]) - 1 if "block_out_channels" in vae else len(vae["temperal_downsample"])
    return int(transformer.get("sample_size", 128) * 2**halvings)


# --- writing ----------------------------------------------------------------------------------------------------------


def save(model: FlowModel, folder: Path, dtype: torch.dtype | None = None, shard_bytes: int | None = None) -> None:
    """Write a folder that diffusers' `from_pretrained` reads: a new transformer, the rest as it was.

    Args:
        dtype: of the transformer's floating-point weights; None keeps theirs.
        shard_bytes: write shards of at most this size; None: 10 GB.

    Raises:
        UserError, OSError: the disk is full or the folder cannot be written.
    """
    _carry(model.source, folder)
    write_state(model.transformer.state_dict(), folder / _TRAINED, _STEM, dtype, shard_bytes or _SHARD_BYTES)


def load(model: FlowModel, path: Path) -> None:
    """Take the transformer's weights from a folder that `save` has written.

    Raises:
        UserError: names and shapes that do not fit (at most ten), files that are missing or damaged.
    """
    stored = open_parts(path)[_TRAINED].fitted(model.transformer.state_dict())
    check(stored.shapes, shapes_of(model.transformer), path / _TRAINED, _HINT)
    fill(model.transformer, stored.read, None, model.device)
    model.source = path


def export(
    source: Path,
    folder: Path,
    start: Start,
    dtype: torch.dtype | None = None,
    shard_bytes: int | None = None,
) -> None:
    """Copy a folder, its transformer tensor by tensor and in `dtype` if one is given. Raises as `save`."""
    weights = open_parts(source)[_TRAINED]
    _carry(source, folder)
    copy(weights, folder / _TRAINED, _STEM, start, dtype, shard_bytes or _SHARD_BYTES)


def _carry(source: Path, folder: Path) -> None:
    """Everything but the transformer's weights; links where the file system allows, as these files never change."""
    if source.resolve() == folder.resolve():
        return
    for part in _parts(source):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for file in sorted(one for one in (source / part).iterdir() if one.is_file()):
            if part != _TRAINED or file.name == "config.json":
                with atomic_path(folder / part / file.name) as temporary:
                    link_or_copy(file.resolve(), temporary)
    with atomic_path(folder / "model_index.json") as temporary:
        link_or_copy((source / "model_index.json").resolve(), temporary)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Without the progress bars of both libraries."""
    from diffusers.utils import logging as ours
    from transformers.utils import logging as theirs

    shown = [logging for logging in (ours, theirs) if logging.is_progress_bar_enabled()]
    for logging in shown:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        for logging in shown:
            logging.enable_progress_bar()


def _parts(folder: Path) -> dict[str, list[str]]:
    """Library and class by part."""
    index: Mapping[str, Any] = read_object(folder / "model_index.json", _HINT)
    return {part: value for part, value in index.items() if isinstance(value, list) and value and value[0] is not None}
