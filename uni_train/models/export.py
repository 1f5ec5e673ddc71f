"""A stored model to a folder that others load, tensor by tensor: the model itself is never built."""

from __future__ import annotations

from pathlib import Path

import torch

from uni_train.errors import UserError
from uni_train.models.family import Found, family_of
from uni_train.models.recognise import recognise
from uni_train.models.weights import Start


def export_model(
    source: Path,
    out: Path,
    start: Start,
    dtype: torch.dtype | None = None,
    shard_bytes: int | None = None,
    force: bool = False,
) -> Found:
    """Write the model at `source` (a run's folder or a checkpoint's) to the folder `out`. Returns what it was.

    Each family writes its own layout, complete.

    Args:
        dtype: of floating-point weights that are trained; None keeps each one's.
        shard_bytes: split the weights into files of at most this size.
        force: write into a folder that holds other files.

    Raises:
        UserError, OSError: `source` holds no model, `out` holds one already or, without `force`, anything, or the disk
            is full.
    """
    found = recognise(source)
    if found.kind == "other":
        raise UserError(f"{source} is {found.what}, not a model that can be exported", found.hint)
    taken = sorted(out.glob("*.safetensors")) if out.is_dir() else []
    if (out / "model_index.json").is_file() or any(
        file.stem.split("-")[0] in ("ema", "model", "model_bf16") for file in taken
    ):
        raise UserError(f"{out} holds a model already", "Give another folder, or remove that one.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UserError(f"{out} is not empty", "Give a new folder, or --force to write beside what is there.")
    family_of(found.kind).export(found.path, out, start, dtype, shard_bytes)
    return found
