"""How much better a sample is than others of its prompt.

    A = (r - mean) / (std + eps)

The mean (the baseline) is that of the group, all samples of one prompt, or of the whole batch. So is the standard
deviation, which may also be left out (Dr. GRPO, Liu et al. 2025, arXiv 2503.20783). With the group's mean a group whose
rewards are all equal teaches nothing. With the batch's it does (Flow-GRPO without per-prompt tracking). Standard
deviations are those of the population.

N samples in a row, R rewards each. Groups are int64 [N], any numbers, in any order. Sums are in float64.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

ScaleRewards = Literal["group", "batch", "none"]

FLOW_GRPO_EPS = 1e-4
FLOW_FACTORY_FLOOR = 1e-6
ROUNDING = 1e-6
"""Rewards that differ by less are equal: of their size, if it is above 1. Eight times the rounding of float32."""


def group_index(keys: Sequence[Hashable]) -> Tensor:
    """int64 [N]: equal keys, equal numbers, counted from 0 as they come. Keys are compared whole."""
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys], dtype=torch.long)


def group_advantages(
    rewards: Tensor,
    groups: Tensor,
    scale_rewards: ScaleRewards = "group",
    eps: float = FLOW_GRPO_EPS,
    floor: float = 0.0,
) -> Tensor:
    """float32, like `rewards` [N] or [N, R] (each reward by itself): less the group's mean, divided by the deviation of
    the group or of the batch, or by nothing.

    Flow-GRPO's per-prompt tracker adds `eps` to the standard deviation; Flow-Factory has no `eps`, but a `floor` of
    1e-6 below it.
    """
    statistics = group_statistics(rewards, groups)
    values = rewards.double()
    difference = (values - statistics.mean[statistics.member]).masked_fill(statistics.zero_std[statistics.member], 0)
    if scale_rewards == "none":
        return difference.float()
    std = statistics.std[statistics.member] if scale_rewards == "group" else values.std(0, correction=0)
    return _over(difference, std, eps, floor).float()


def batch_advantages(
    rewards: Tensor, eps: float = FLOW_GRPO_EPS, floor: float = 0.0, scale_rewards: ScaleRewards = "batch"
) -> Tensor:
    """float32, like `rewards`: by mean and deviation of all numbers in it, whatever their prompt or reward.

    Raises:
        ValueError: a group's deviation beside the batch's mean.
    """
    if scale_rewards == "group":
        raise ValueError("the batch's mean with the deviation of groups, which may be 0")
    values = rewards.double()
    difference = (values - values.mean()).masked_fill(equal(values.amax(), values.amin()), 0)
    return (difference if scale_rewards == "none" else _over(difference, values.std(correction=0), eps, floor)).float()


def gdpo_advantages(
    rewards: Tensor, weights: Tensor, groups: Tensor, eps: float = 0.0, floor: float = FLOW_FACTORY_FLOOR
) -> Tensor:
    """float32 [N] of rewards [N, R]: each reward is normalised in its group before they are added.

    So a reward with a wide range cannot dominate the others. In the advantage of a weighted sum it can. The sum is
    normalised over the batch. As in Flow-Factory's ``gdpo``.
    """
    each = group_advantages(rewards.double(), groups, "group", eps, floor).double()
    return batch_advantages(each @ weights.double(), eps, floor)


@dataclass(frozen=True, slots=True, eq=False)
class GroupStatistics:
    """Of G groups, in the order of their numbers.

    Attributes:
        mean, std: float64 [G] or [G, R].
        size: int64 [G].
        zero_std: bool, like `std`: all rewards of the group are `equal`.
        member: int64 [N], the row of `mean` that a sample belongs to.
    """

    mean: Tensor
    std: Tensor
    size: Tensor
    zero_std: Tensor
    member: Tensor


def group_statistics(rewards: Tensor, groups: Tensor) -> GroupStatistics:
    """Of rewards [N] or [N, R]."""
    numbers, member = groups.unique(return_inverse=True)
    values = rewards.double()
    blank = values.new_zeros(len(numbers), *values.shape[1:])
    index = member.reshape(-1, *[1] * (values.ndim - 1)).expand_as(values)

    def reduce(x: Tensor, how: Literal["mean", "amax", "amin"]) -> Tensor:
        return blank.scatter_reduce(0, index, x, how, include_self=False)

    mean = reduce(values, "mean")
    std = reduce((values - mean[member]).square(), "mean").sqrt()
    zero_std = equal(reduce(values, "amax"), reduce(values, "amin"))
    return GroupStatistics(mean, std, torch.bincount(member), zero_std, member)


def equal(high: Tensor, low: Tensor) -> Tensor:
    """bool: the largest and the smallest of some rewards differ by no more than rounding."""
    return high - low <= ROUNDING * torch.maximum(high.abs(), low.abs()).clamp_min(1)


def informative(rewards: Tensor, groups: Tensor) -> Tensor:
    """bool [N]: samples of groups whose rewards [N] differ; the others have advantage 0 and need no training."""
    statistics = group_statistics(rewards, groups)
    return ~statistics.zero_std[statistics.member]


def _over(difference: Tensor, std: Tensor, eps: float, floor: float) -> Tensor:
    return difference / (std + eps).clamp_min(floor)
