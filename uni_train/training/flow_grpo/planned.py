"""What reinforcement keeps and computes, with shapes alone: for plans, which follow an update without doing it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from uni_train.flow.schedule import Schedule
from uni_train.models.base import FlowPolicy
from uni_train.models.shapes import ImageRequest
from uni_train.training.flow_grpo.batches import MicroBatch
from uni_train.training.flow_grpo.config import GrpoConfig
from uni_train.training.flow_grpo.losses import Losses


class PlannedLosses:
    """The losses of a model whose parameters of these names are trained (`config.kinds.PlannedLosses`)."""

    def __init__(self, config: GrpoConfig, model: FlowPolicy, trained: set[str]) -> None:
        self.config, self.losses = config, Losses(model, config, trained)

    @property
    def others(self) -> list[Any]:
        reference = self.losses.reference
        return [reference.copy if reference is not None else {}, self.losses.sampler or {}]

    def requests(self, images: int) -> int:
        return max(images // self.config.images_a_request, 1)

    def stored(self, image: ImageRequest, images: int) -> list[Tensor]:
        """As in rollout.Rollouts."""
        config, size = self.config, (image.tokens, image.channels)
        final = torch.empty(images, *size, device="meta")
        if config.algorithm.forward:
            return [final]
        dtype = getattr(torch, config.rollout.latents)
        kept = [final, torch.empty(images, config.window_size + 1, *size, dtype=dtype, device="meta")]
        if config.algorithm.keeps_means:
            kept.append(torch.empty(images, config.window_size, *size, device="meta"))
        return kept

    def sampling(self) -> AbstractContextManager[object]:
        return self.losses.sampling()

    def loss(self, image: ImageRequest, rows: int, condition: Any) -> Tensor:
        return self.losses.step_loss(_micro_batch(image, rows, self.config, condition))[0]


def _micro_batch(image: ImageRequest, rows: int, config: GrpoConfig, condition: Any) -> MicroBatch:
    """As the trainer cuts them."""

    def latents() -> Tensor:
        return torch.empty(rows, image.tokens, image.channels, device="meta")

    def numbers() -> Tensor:
        return torch.empty(rows, device="meta")

    stored: dict[str, Any]
    if config.algorithm.forward:
        stored = {"clean": latents()}
    else:
        stored = {"x_next": latents(), "old_log_prob": numbers()}
        stored["steps"] = torch.zeros(rows, dtype=torch.long, device="meta")
        stored |= {"old_mean": latents()} if config.algorithm.keeps_means else {}
    return MicroBatch(
        x=latents(),
        t=numbers(),
        condition=condition,
        advantage=numbers(),
        mask=torch.ones(rows, image.tokens, 1, dtype=torch.bool, device="meta"),
        schedule=_Levels(torch.empty(config.rollout.steps + 1, device="meta")),
        **stored,
    )


class _Levels(Schedule):
    """Noise levels without numbers, which cannot be checked."""

    def __post_init__(self) -> None:
        pass
