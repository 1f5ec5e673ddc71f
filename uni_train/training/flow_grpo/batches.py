"""What an update trains on: micro-batches of random steps, and the thoughts beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from uni_train.flow.schedule import Schedule
from uni_train.models.base import Request
from uni_train.models.transfer import upload

NO_TOKEN = -1
"""In place of a token behind the end of a thought."""
UNUSED = torch.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class ThoughtBatch:
    """R thoughts to train on.

    Attributes:
        requests: what the thoughts answer. ids: int64 [R, L], NO_TOKEN behind the end, on the host.
        old_log_prob: float32 [R, L]. advantage: [R]. share: of the update's thoughts on all ranks, in [0, 1].
        index: int64 [R], their places in Rollouts.
    """

    requests: Sequence[Request]
    ids: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    share: float
    index: Tensor

    @property
    def written(self) -> Tensor:
        """bool [R, L], where there is a token."""
        return upload(self.ids != NO_TOKEN, self.old_log_prob.device)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MicroBatch:
    """R random steps to train on (DiffusionNFT, AWM: images noised again).

    Attributes:
        x: [R, G, C], latents before the step. t: [R], its noise level. condition: R rows. advantage: [R].
        mask: bool [R, G, 1]. share: of the update's steps on all ranks, in [0, 1]; 0: padding, without a gradient.
        steps, schedule: int64 [R], indices into the schedule. x_next: [R, G, C], latents after the step.
        old_log_prob: [R]. old_mean: [R, G, C], for objectives that need it. All of random steps only.
        clean: [R, G, C], the finished image. DiffusionNFT and AWM only.
        thoughts: to train on beside the steps. rows: (image, step in the window) of each, none of padding.
    """

    x: Tensor
    t: Tensor
    condition: Any
    advantage: Tensor
    mask: Tensor
    schedule: Schedule
    share: float = 1.0
    steps: Tensor = UNUSED
    x_next: Tensor = UNUSED
    old_log_prob: Tensor = UNUSED
    old_mean: Tensor = UNUSED
    clean: Tensor = UNUSED
    thoughts: ThoughtBatch | None = None
    rows: Sequence[tuple[int, int]] = ()
