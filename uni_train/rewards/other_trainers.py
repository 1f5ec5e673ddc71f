"""The verifiers' reward for other trainers: images of any kind, items as Item, dict or JSON; docs/rewards.md."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import DataError, UserError
from uni_train.core.reading_limits import parse_json, rgb
from uni_train.data_gen.task import Item
from uni_train.data_gen.verifying import judge_pixels, read_image

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    Completion = np.ndarray | Image.Image | str | os.PathLike[str] | None


def task_reward(
    prompts: Sequence[Any],
    completions: Sequence[Completion],
    *,
    item: Sequence[Item | Mapping[str, Any] | str | None] | None = None,
    **columns: object,
) -> list[float | None]:
    """1 where an image passes every check of its item's task, else 0; None where there is no item.

    The signature is that of reward functions of trl's GRPOTrainer.

    Args:
        prompts: not read.
        completions: images: uint8 [H, W, 3], [H, W, 4] or [H, W], PIL images, or paths of files. What cannot be read
            as an image gets 0, and so does None.
        item: an `Item`, its dict, or its JSON as in Parquet of `data make`; one an image.
        columns: not read.

    Raises:
        UserError: `item` is missing, too short or too long, or holds no item of a known task. Or a completion has
            another type, such as a tensor.
    """
    if item is None or len(item) != len(completions):
        raise UserError(
            f"task_reward got {len(completions)} completions and {'no' if item is None else len(item)} items",
            "Pass the column item, one an image: `uni_train data make --format parquet` writes it.",
        )
    return [_reward(row, known, image) for row, (known, image) in enumerate(zip(item, completions, strict=True))]


def _reward(row: int, known: Item | Mapping[str, Any] | str | None, image: Completion) -> float | None:
    if known is None:
        return None
    pixels = _pixels(row, image)
    try:
        value = parse_json(known, f"item of row {row}") if isinstance(known, str) else known
        item = value if isinstance(value, Item) else Item.from_dict(value)
        return float(pixels is not None and judge_pixels(item, pixels).passed)
    except (DataError, KeyError, TypeError) as error:
        raise UserError(
            f"row {row}: item is no item of a task ({type(error).__name__}: {error})",
            "Pass items as `uni_train data make` writes them.",
        ) from error


def _pixels(row: int, image: Completion) -> np.ndarray | None:
    """uint8 [H, W, 3]; None for what cannot be read as an image."""
    import numpy as np
    from PIL import Image

    if image is None:
        return None
    if not isinstance(image, np.ndarray | Image.Image | str | os.PathLike):
        raise UserError(f"row {row}: the completion is a {type(image).__name__}", _IMAGES)
    if isinstance(image, np.ndarray) and image.dtype != np.uint8:
        raise UserError(f"row {row}: the completion is an array of {image.dtype}", _IMAGES)
    try:
        if isinstance(image, str | os.PathLike):
            return read_image(Path(image))
        pixels = rgb(Image.fromarray(image) if isinstance(image, np.ndarray) else image)
        return pixels if pixels.size else None
    except Exception:  # of any decoder: a model's image must not end its training
        return None


_IMAGES = "Pass images as uint8 [H, W, 3] in [0, 255], PIL images or paths."
