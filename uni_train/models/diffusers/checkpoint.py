"""A folder in diffusers' layout to a model: model_index.json names the pipeline's class and its parts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from uni_train.config.schema import ModelConfig
from uni_train.data_gen.reading_limits import reason
from uni_train.errors import UserError
from uni_train.models.diffusers.interface import Interface, interface
from uni_train.models.diffusers.unified import DiffusersModel
from uni_train.models.weights import Weights, read_object, weight_files

_HINT = "It must be a pipeline in diffusers' layout with safetensors; `uni_train models inspect` shows what it is."
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
    return DiffusersModel(config.name, pipeline, takes, config.sampling)


def skeleton(config: ModelConfig) -> tuple[DiffusersModel, bool]:
    raise UserError(f"model={config.name} has no sizes of its own", "Give a folder with model.checkpoint=FOLDER.")


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


def _parts(folder: Path) -> list[str]:
    index: Mapping[str, Any] = read_object(folder / "model_index.json", _HINT)
    return [part for part, value in index.items() if isinstance(value, list) and value and value[0] is not None]
