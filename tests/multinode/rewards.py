"""Rewards of tests, which a recipe names by this file."""

from __future__ import annotations

from typing import Any

import numpy as np


def lit(prompts: list[str], completions: list[np.ndarray], **_: Any) -> list[float]:
    """How bright."""
    return [float(image.mean()) / 255 for image in completions]


def broken(prompts: list[str], completions: list[np.ndarray], *, place: list[int], **_: Any) -> list[float]:
    """No number for the last picture of an epoch of 8, which the last rank has."""
    return [float("nan") if number == 7 else 1.0 for number in place]
