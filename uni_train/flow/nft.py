"""DiffusionNFT (Zheng et al. 2025, arXiv 2509.16117): reinforcement by the forward process, without likelihoods.

Samples are noised again as in supervised training. The loss pulls the velocity v towards samples with a high reward. It
pushes v away from those with a low one. Both directions are targets; with v_old the policy that sampled,

    v+ = (1 - b) v_old + b v        v- = (1 + b) v_old - b v
    loss = r ||v+ - v*||^2 + (1 - r) ||v- - v*||^2

where v* is the velocity towards the sample and r in [0, 1] says how good it is. The minimum for one sample is
``v = v_old + (2 r - 1) / b (v* - v_old)``: at r = 1/2 nothing is learned. This does not hold if the weight of the
second branch (`negative`) is not 1. The trainer then leaves out samples without an advantage. No density is needed, so
samples may come from any solver. An `anchor` to a reference model is added by the trainer.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from uni_train.flow.objective import clean_from_velocity
from uni_train.flow.transition import row_mean

SMALLEST_ERROR = 1e-5


def optimality(advantage: Tensor, advantage_clip: float) -> Tensor:
    """``r = 1/2 + clip(A / advantage_clip, -1, 1) / 2`` in [0, 1]."""
    return 0.5 + (advantage / advantage_clip).clamp(-1, 1) / 2


def nft_loss(
    velocity: Tensor,
    old_velocity: Tensor,
    x_t: Tensor,
    clean: Tensor,
    t: Tensor,
    optimal: Tensor,
    *,
    beta: float = 1.0,
    negative: float = 1.0,
    weighting: Literal["error", "none"] = "error",
    mask: Tensor | None = None,
) -> Tensor:
    """[B]: the loss of each row, divided by `beta`.

    Errors are measured on the images that the velocities imply, which weighs velocities by t^2. With `weighting`
    "error" each branch is divided by its mean absolute error, kept constant and at least 1e-5. This follows the
    released code: every level and sample then has about the same influence. The released trainer multiplies the mean by
    `advantage_clip`.

    Args:
        velocity, old_velocity: [B, ...] at x_t, of the trained and of the sampling weights (a constant here).
        x_t: [B, ...], ``(1 - t) clean + t noise``.
        clean: [B, ...], the sampled latents.
        t: noise levels, broadcast to x_t.
        optimal: [B], of `optimality`.
        beta: how far v+ and v- lie from the old velocity.
        negative: weight of the second branch. 1 is the paper's; 0, positive-only, is fine-tuning weighted by r.
        mask: bool, which elements belong to an image.
    """
    old_velocity = old_velocity.detach()
    step = beta * (velocity - old_velocity)
    towards = _image_error(old_velocity + step, x_t, clean, t, weighting, mask)
    away = _image_error(old_velocity - step, x_t, clean, t, weighting, mask)
    return (optimal * towards + negative * (1 - optimal) * away) / beta


def anchor(prediction: Tensor, reference: Tensor, mask: Tensor | None = None) -> Tensor:
    """[B]: mean squared distance to what the reference model predicts, velocities or clean images alike."""
    return row_mean((prediction - reference.detach()).square(), mask)


def _image_error(
    velocity: Tensor, x_t: Tensor, clean: Tensor, t: Tensor, weighting: str, mask: Tensor | None
) -> Tensor:
    error = clean_from_velocity(x_t, velocity, t) - clean
    squared = row_mean(error.square(), mask)
    if weighting == "none":
        return squared
    with torch.no_grad():
        size = row_mean(error.abs(), mask).clamp_min(SMALLEST_ERROR)
    return squared / size
