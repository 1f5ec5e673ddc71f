"""Euler's method for ``dx/dt = v``, from noise (t = 1) down to the image (t = 0)."""

from __future__ import annotations

from torch import Tensor


def euler_step(x: Tensor, velocity: Tensor, t: Tensor | float, t_next: Tensor | float) -> Tensor:
    """``x' = x - v (t - t')`` with ``t' < t``."""
    return x - velocity * (t - t_next)
