"""A stored model to a folder that others load, tensor by tensor: the model itself is never built."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from uni_train.errors import UserError
from uni_train.files import atomic_path
from uni_train.models.load import CONFIG, WEIGHTS
from uni_train.models.recognise import Found, recognise
from uni_train.models.weights import Weights, write_sharded

Start = Callable[[int], Callable[[], object]]
"""Told how many tensors there will be; what it returns is called after each."""


def export_model(
    source: Path,
    out: Path,
    start: Start,
    dtype: torch.dtype | None = None,
    shard_bytes: int | None = None,
) -> Found:
    """Write the model at `source` (a run's folder or a checkpoint's) to the folder `out`. Returns what it was.

    BAGEL is written in the official layout, Qwen-Image-Edit in diffusers', both complete; nano as `save_model` does.

    Args:
        dtype: of floating-point weights (Qwen-Image-Edit: of the transformer); None keeps each one's.
        shard_bytes: split the weights into files of at most this size.

    Raises:
        UserError, OSError: `source` holds no model, `out` holds one already, or the disk is full.
    """
    found = recognise(source)
    if found.kind == "other":
        raise UserError(f"{source} is {found.what}, not a model that can be exported", found.hint)
    taken = sorted(out.glob("*.safetensors")) if out.is_dir() else []
    if (out / "model_index.json").is_file() or any(
        file.stem.split("-")[0] in ("ema", "model", "model_bf16") for file in taken
    ):
        raise UserError(f"{out} holds a model already", "Give another folder, or remove that one.")
    if found.kind == "bagel":
        from uni_train.models.bagel.checkpoint import export

        export(found.path, out, start, dtype, shard_bytes)
        return found
    if found.kind == "qwen_image_edit":
        from uni_train.models.qwen_image_edit.checkpoint import export as export_editor

        export_editor(found.path, out, start, dtype, shard_bytes)
        return found
    weights = Weights([found.path / WEIGHTS])
    tensors = {
        name: (dtype if dtype is not None and stored.dtype.is_floating_point else stored.dtype, stored.shape)
        for name, stored in weights.items()
    }
    advance = start(len(tensors))

    def get(name: str) -> torch.Tensor:
        advance()
        return weights.read(name)

    out.mkdir(parents=True, exist_ok=True)
    with atomic_path(out / CONFIG) as temporary:
        shutil.copyfile(found.path / CONFIG, temporary)
    write_sharded(out, Path(WEIGHTS).stem, tensors, get)
    return found
