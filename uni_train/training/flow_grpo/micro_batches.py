"""What an update trains on: the rows of an epoch's images, and micro-batches of them.

A row is (number of an image, random step in the window). The step behind the window stands for the image's thought.
Rows follow from rewards and seeds, so every rank computes those of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from uni_train.config.schema import GrpoConfig
from uni_train.data_gen.seeds import derive_seed, rng
from uni_train.flow.advantages import informative
from uni_train.flow.objective import interpolate
from uni_train.flow.schedule import Schedule
from uni_train.models.base import Request
from uni_train.training.flow_grpo.rollout import Context, Rollouts, thought_request

Row = tuple[int, int]
_UNUSED = torch.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class ThoughtBatch:
    """R thoughts to train on.

    Attributes:
        requests: what the thoughts answer. ids: int64 [R, L], NO_TOKEN behind the end. old_log_prob: float32 [R, L].
        advantage: [R]. share: of the update's thoughts on all ranks, in [0, 1].
    """

    requests: Sequence[Request]
    ids: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    share: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MicroBatch:
    """R random steps to train on (DiffusionNFT, AWM: images noised again).

    Attributes:
        x: [R, G, C], latents before the step. t: [R], its noise level. condition: R rows. advantage: [R].
        mask: bool [R, G, 1]. share: of the update's steps on all ranks, in [0, 1]; 0: padding, without a gradient.
        on_policy: the weights are those that sampled.
        steps, schedule: int64 [R], indices into the schedule. x_next: [R, G, C], latents after the step.
        old_log_prob: [R]. old_mean: [R, G, C], for objectives that need it. All of random steps only.
        clean: [R, G, C], the finished image. DiffusionNFT and AWM only.
        thoughts: to train on beside the steps. rows: what it is made of, without padding.
    """

    x: Tensor
    t: Tensor
    condition: Any
    advantage: Tensor
    mask: Tensor
    schedule: Schedule
    share: float = 1.0
    on_policy: bool = False
    steps: Tensor = _UNUSED
    x_next: Tensor = _UNUSED
    old_log_prob: Tensor = _UNUSED
    old_mean: Tensor = _UNUSED
    clean: Tensor = _UNUSED
    thoughts: ThoughtBatch | None = None
    rows: Sequence[Row] = ()


def update_rows(rollouts: Rollouts, config: GrpoConfig, stage: str, update: int) -> list[Row]:
    """The rows of an update on all ranks: an equal part of the images, shuffled by seed, epoch and pass.

    Images of groups with equal rewards are left out, unless the batch is the baseline. Where no image is left, a `kl`
    penalty acts on all.
    """
    rollout, objective = config.rollout, config.objective
    groups = torch.arange(rollout.prompts_per_epoch).repeat_interleave(rollout.group_size)
    if objective.baseline == "batch":
        groups = torch.zeros_like(groups)
    use = informative(rollouts.rewards if objective.scale_rewards == "each" else rollouts.totals, groups)
    use = use.any(1) if use.ndim > 1 else use
    images = [i for i in range(len(use)) if bool(use[i])] or (list(range(len(use))) if objective.kl else [])
    turn, part = divmod(update, config.updates_per_pass)
    rng("pictures", config.seed, stage, rollouts.epoch, *([turn] if turn else [])).shuffle(images)
    return [(image, step) for image in images[part :: config.updates_per_pass] for step in range(config.rows_an_image)]


def step_fields(
    rollouts: Rollouts, context: Context, rows: Sequence[Row], config: GrpoConfig, stage: str
) -> dict[str, Any]:
    """Fields of MicroBatch for some rows: stored random steps, or finished images noised again."""
    index = [image - rollouts.images.start for image, _ in rows]
    places = torch.tensor([step for _, step in rows], device=rollouts.final.device)
    condition, schedule = context.select([image for image, _ in rows])
    mask = rollouts.mask[index]
    fields = {"condition": condition, "schedule": schedule, "mask": mask, "advantage": rollouts.advantages[index]}
    if rollouts.window is None:
        clean = rollouts.final[index]
        draws = [_noise_draw(clean.shape[1:], config, stage, rollouts.epoch, *row) for row in rows]
        t = torch.tensor([level for level, _ in draws], device=clean.device)
        noise = torch.stack([noise for _, noise in draws]).to(clean) * mask
        return {**fields, "x": interpolate(clean, noise, t[:, None, None]), "t": t, "clean": clean}
    steps = places + rollouts.window.start
    if rollouts.means.numel():
        fields["old_mean"] = rollouts.means[index, places]
    return {
        **fields,
        "x": rollouts.latents[index, places].float(),
        "t": schedule.step(steps)[0],
        "steps": steps,
        "x_next": rollouts.latents[index, places + 1].float(),
        "old_log_prob": rollouts.log_probs[index, places],
    }


def thought_batch(rollouts: Rollouts, images: Sequence[int], share: float, config: GrpoConfig) -> ThoughtBatch | None:
    """The thoughts of some images; None of none."""
    if not images:
        return None
    index = [image - rollouts.images.start for image in images]
    requests = [thought_request(rollouts.requests[image], image % config.rollout.group_size) for image in images]
    old, advantages = rollouts.thought_log_probs[index], rollouts.advantages[index]
    return ThoughtBatch(requests, rollouts.thoughts[index], old, advantages, share)


def _noise_draw(
    shape: torch.Size, config: GrpoConfig, stage: str, epoch: int, image: int, draw: int
) -> tuple[float, Tensor]:
    """Noise level in [0, 1) and noise of one draw (DiffusionNFT, AWM); the draws of an image spread evenly."""
    generator = torch.Generator().manual_seed(derive_seed(config.seed, stage, "noised", epoch, image, draw))
    level = (draw + float(torch.rand((), generator=generator))) / config.objective.noise_draws
    return level, torch.randn(shape, generator=generator)
