"""Rectified flow (Liu et al. 2022): the straight path between an image and noise, and its velocity.

``x_t = (1 - t) x_0 + t e``,  ``dx_t/dt = e - x_0``.
"""

from __future__ import annotations

from torch import Tensor


def interpolate(clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    """``x_t = (1 - t) clean + t noise``; `t` broadcasts. Exactly `clean` where t = 0."""
    return (1 - t) * clean + t * noise


def velocity_target(clean: Tensor, noise: Tensor) -> Tensor:
    """``v = noise - clean``, the derivative of `interpolate` with respect to t."""
    return noise - clean


def velocity_from_clean(x_t: Tensor, clean: Tensor, t: Tensor, floor: float = 0.02) -> Tensor:
    """Velocity implied by a prediction of the clean image: ``v = (x_t - clean) / t``, with t kept above `floor`."""
    return (x_t - clean) / t.clamp_min(floor)


def clean_from_velocity(x_t: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """Clean image implied by a velocity: ``x_0 = x_t - t v``."""
    return x_t - t * velocity
