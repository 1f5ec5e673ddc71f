"""What reinforcement draws and learns from, with shapes alone: conditions and rollouts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from uni_train.config.kinds import Rollouts
from uni_train.config.schema import TrainingConfig
from uni_train.models.base import FlowPolicy
from uni_train.models.shapes import ImageRequest, Shapes
from uni_train.plan.trace import following, place
from uni_train.plan.updates import Cast, Traced, updates
from uni_train.training.trained import train_only


def reinforced(
    model: FlowPolicy,
    shapes: Shapes,
    one: ImageRequest,
    rows: int,
    rollouts: Rollouts,
    config: TrainingConfig,
    trained: str,
    draw_rows: int,
    cast: Cast | None,
    pictures: int,
) -> Traced:
    """An epoch's drawing and an update on its last micro-batch of `rows` random steps.

    Args:
        pictures: of this GPU, in an epoch.
    """
    with following("meta") as trace:
        place(model, "meta", cast)
        losses = rollouts.losses(model, train_only(model, trained))
        trace.name(losses.others, "reference")
        under = shapes.condition(one, losses.requests(pictures), "meta")
        stored = losses.stored(one, pictures)  # held until the update is traced
        trace.name(stored, "rollouts")
        trace.name(shapes.tensors(under), "rollouts")
        drawn = min(draw_rows, pictures)

        def draw() -> None:
            x = torch.empty(drawn, one.tokens, one.channels, device="meta")
            with losses.sampling():
                model.velocity(x, torch.ones((), device="meta"), _picked(under, drawn))

        def loss() -> Tensor:
            return losses.loss(one, rows, _picked(under, rows))

        return updates(trace, model, config, [loss], "meta", draw, later=rollouts.rows(pictures) > rows)


def image_flops(model: FlowPolicy, shapes: Shapes, one: ImageRequest, steps: int, cast: Cast | None) -> float:
    """Of drawing an image with all branches of the guidance, without reading the prompt and without the VAE."""
    with following("meta") as trace:
        place(model, "meta", cast)
        x = torch.empty(1, one.tokens, one.channels, device="meta")
        with torch.no_grad():
            model.velocity(x, torch.ones((), device="meta"), shapes.condition(one, 1, "meta"))
    return trace.flops * steps


def _picked(under: Any, rows: int) -> Any:
    """`rows` rows of a condition of one row a group."""
    return under.select([row % len(under) for row in range(rows)])
