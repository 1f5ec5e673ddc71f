"""Thoughts that images are drawn by, learned together with the drawing (UniGRPO, Liu et al. 2026, arXiv 2603.23500).

One thought an image, written at temperature 1. The reward is that of the image, and its advantage A counts for the
tokens of the thought as it does for the random steps of the drawing:

    loss = image_weight * loss of the random steps + weight * mean over thoughts of their loss
    loss of a thought = mean over its tokens of max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) + kl * k3

with r = p(token) / p_old(token): GRPO's eq. 3 (Shao et al. 2024, arXiv 2402.03300), k3 its estimate of the divergence
from the reference, ``exp(q) - q - 1`` with q = log p_reference - log p. Old log probabilities are those that training
gives before weights change, so the first ratio is 1 in any precision.

Left out on purpose: gradients of the drawing to the thought by way of the context (it is read without gradients).

Shapes: R thoughts, L tokens of the longest one a model may write, its end marker included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from uni_train.config.schema import ThoughtsConfig
from uni_train.models.base import Request

NONE = -1
"""In place of a token behind the end of a thought."""
PARTS = ("thoughts/policy_loss", "thoughts/clip_ratio", "thoughts/ratio_off", "thoughts/length")
"""What `thought_loss` tells, beside "thoughts/kl"."""


@dataclass(frozen=True, slots=True, eq=False)
class ThoughtBatch:
    """R thoughts to train on.

    Attributes:
        requests: what was asked. ids: int64 [R, L], NONE behind the end. old_log_prob: float32 [R, L]. advantage: [R].
        share: of the update's thoughts, on all ranks, that these are.
    """

    requests: Sequence[Request]
    ids: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    share: float


def table(ids: Sequence[Sequence[int]], most: int) -> Tensor:
    """int64 [R, most], where `most` may be 0."""
    return torch.tensor([[*row, *[NONE] * (most - len(row))] for row in ids], dtype=torch.long).reshape(len(ids), most)


def written(row: Tensor) -> list[int]:
    """The ids of one row of a table."""
    return [one for one in row.tolist() if one != NONE]


def log_probs(model: Any, requests: Sequence[Request], ids: Tensor) -> Tensor:
    """float32 [R, L] with gradients, 0 behind the end."""
    said = ids != NONE
    rows = [row[own].tolist() for row, own in zip(ids, said, strict=True)]
    found = ids.new_zeros(ids.shape, dtype=torch.float32)
    return found.masked_scatter(said, model.thought_log_probs(requests, rows))


def token_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, said: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Terms and ratios [R, L] of GRPO's clipped objective, before any mean.

    Args:
        log_prob, old_log_prob: [R, L]; the gradient goes to the first. advantage: [R]. said: bool [R, L].
    """
    ratio = ((log_prob - old_log_prob) * said).exp()
    advantage = advantage[:, None]
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip_low, 1 + clip_high)), ratio


def thought_loss(
    log_prob: Tensor,
    reference: Tensor | None,
    rows: ThoughtBatch,
    settings: ThoughtsConfig,
    advantage_clip: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean over thoughts, and its parts."""
    said = rows.ids != NONE
    count = said.sum(1).clamp_min(1)

    def mean(values: Tensor) -> Tensor:
        return ((values * said).sum(1) / count).mean()

    advantage = rows.advantage.clamp(-advantage_clip, advantage_clip)
    low, high = settings.clip_low, settings.clip_high
    terms, ratio = token_loss(log_prob, rows.old_log_prob, advantage, said, clip_low=low, clip_high=high)
    loss = mean(terms)
    off = ratio.detach() - 1
    parts = {
        "thoughts/policy_loss": loss,
        "thoughts/clip_ratio": mean(((off > high) | (-off > low)).float()),
        "thoughts/ratio_off": mean(off.abs()),
        "thoughts/length": count.float().mean(),
    }
    if reference is None:
        return loss, parts
    apart = reference - log_prob
    parts["thoughts/kl"] = mean(apart.exp() - apart - 1)
    return loss + settings.kl * parts["thoughts/kl"], parts
