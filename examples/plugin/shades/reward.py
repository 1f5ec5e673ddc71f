"""How near an image is to the shade that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from uni_train.data_gen.task import Item
from uni_train.rewards.registry import reward


@reward("near_shade")
def near_shade(
    prompts: Sequence[str], completions: Sequence[np.ndarray], *, item: Sequence[Item], **columns: Any
) -> list[float]:
    """1 at the shade, falling to 0 at the farthest."""
    pairs = zip(completions, item, strict=True)
    return [1 - abs(float(image.mean()) / 255 - one.facts["tenths"] / 10) for image, one in pairs]
