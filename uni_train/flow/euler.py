"""Euler's method for ``dx/dt = v``, from noise (t = 1) down to the image (t = 0)."""

from __future__ import annotations

from torch import Tensor


def euler_step(x: Tensor, velocity: Tensor, t: Tensor | float, t_next: Tensor | float) -> Tensor:
    """``x' = x - v (t - t')`` with ``t' < t``; levels are numbers, or [B] for x of [B, ...]."""
    length = t - t_next
    return x - velocity * (per_row(length, x) if isinstance(length, Tensor) else length)


def per_row(level: Tensor, x: Tensor) -> Tensor:
    """A scalar, [1] or [B] as [1 or B, 1, ...]; what has the dimensions of x as it is."""
    return level if level.ndim == x.ndim else level.to(x.device).reshape(-1, *[1] * (x.ndim - 1))
