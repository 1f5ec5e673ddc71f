"""Noise levels of a rectified flow: t = 0 is the clean image, t = 1 is noise.

The shift (Esser et al. 2024, "Scaling Rectified Flow Transformers", section 5.3.2, eq. 23) moves probability towards
high noise levels, which large images need. BAGEL uses the same formula for training and for sampling.
"""

from __future__ import annotations

import torch
from torch import Tensor


def shift_timestep(t: Tensor, shift: float) -> Tensor:
    """``t -> s t / (1 + (s - 1) t)``, a bijection of [0, 1]; the identity at ``s = 1``."""
    return shift * t / (1 + (shift - 1) * t)


def unshift_timestep(t: Tensor, shift: float) -> Tensor:
    """Inverse of `shift_timestep`: ``t / (s - (s - 1) t)``."""
    return t / (shift - (shift - 1) * t)


def train_timestep(logit: Tensor, shift: float) -> Tensor:
    """Noise level of training from a pre-sigmoid draw: ``shift(sigmoid(logit))``.

    BAGEL draws ``logit ~ N(0, 1)`` once per target image (logit-normal sampling); ``-inf`` marks a clean image and
    gives exactly 0.
    """
    return shift_timestep(torch.sigmoid(logit), shift)


def inference_timesteps(num_timesteps: int, shift: float) -> Tensor:
    """The N points of a sampling run, from 1 to 0, float32: ``shift(linspace(1, 0, N))``. N points are N - 1 steps."""
    if num_timesteps < 2:
        raise ValueError(f"num_timesteps must be at least 2 (2 points are 1 step), got {num_timesteps}")
    return shift_timestep(torch.linspace(1, 0, num_timesteps), shift)
