"""What reinforcement draws and learns from, with shapes alone: conditions and rollouts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from uni_train.config.schema import GrpoConfig
from uni_train.flow.schedule import Schedule
from uni_train.models.base import FlowPolicy
from uni_train.models.shapes import ImageRequest, Shapes
from uni_train.plan.trace import following, place
from uni_train.plan.updates import Cast, Traced, updates
from uni_train.training.flow_grpo.losses import Losses, MicroBatch
from uni_train.training.trained import train_only


def reinforced(
    model: FlowPolicy,
    shapes: Shapes,
    one: ImageRequest,
    rows: int,
    config: GrpoConfig,
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
        losses = Losses(model, config, train_only(model, trained))
        trace.name([losses.reference.copy if losses.reference is not None else {}, losses.sampler or {}], "reference")
        groups = max(pictures // config.rollout.group_size, 1)
        under = shapes.condition(one, groups if config.thoughts is None else pictures, "meta")
        stored = _stored(one, pictures, config)
        trace.name(stored, "rollouts")
        trace.name(shapes.tensors(under), "rollouts")
        drawn = min(draw_rows, pictures)

        def draw() -> None:
            x = torch.empty(drawn, one.tokens, one.channels, device="meta")
            with losses.sampling():
                model.velocity(x, torch.ones((), device="meta"), _picked(under, drawn))

        def loss() -> Tensor:
            return losses.step_loss(_rows(one, rows, config, _picked(under, rows)))[0]

        more = pictures * config.rows_an_image // config.updates_per_pass > rows
        return updates(trace, model, config, [loss], "meta", draw, later=more)


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


def _stored(one: ImageRequest, pictures: int, config: GrpoConfig) -> list[Tensor]:
    """As in rollout.Rollouts."""
    size = (one.tokens, one.channels)
    final = torch.empty(pictures, *size, device="meta")
    if config.forward:
        return [final]
    dtype = getattr(torch, config.rollout.latents)
    found = [final, torch.empty(pictures, config.window_size + 1, *size, dtype=dtype, device="meta")]
    if config.keeps_means:
        found.append(torch.empty(pictures, config.window_size, *size, device="meta"))
    return found


def _rows(one: ImageRequest, rows: int, config: GrpoConfig, under: Any) -> MicroBatch:
    """As the trainer cuts them."""

    def latents() -> Tensor:
        return torch.empty(rows, one.tokens, one.channels, device="meta")

    def numbers() -> Tensor:
        return torch.empty(rows, device="meta")

    stored: dict[str, Any]
    if config.forward:
        stored = {"clean": latents()}
    else:
        stored = {"x_next": latents(), "old_log_prob": numbers()}
        stored["steps"] = torch.zeros(rows, dtype=torch.long, device="meta")
        stored |= {"old_mean": latents()} if config.keeps_means else {}
    return MicroBatch(
        x=latents(),
        t=numbers(),
        condition=under,
        advantage=numbers(),
        mask=torch.ones(rows, one.tokens, 1, dtype=torch.bool, device="meta"),
        schedule=_Levels(torch.empty(config.rollout.steps + 1, device="meta")),
        **stored,
    )


class _Levels(Schedule):
    """Noise levels without numbers, which cannot be checked."""

    def __post_init__(self) -> None:
        pass
