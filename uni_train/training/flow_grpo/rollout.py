"""An epoch's rollouts: images of prompts, their rewards and advantages.

    PromptList          the prompts: a function of seed and epoch
    sample_epoch        sampling (flow.rollout), rewards (rewards.contract), advantages (flow.advantages)
    Rollouts            what the updates of the epoch train on

Shapes: N = prompts x group_size images on all ranks, M of them on this rank; W random steps each, latents [G, C]. The
images of a group are adjacent. Samples depend on weights, seed, epoch and prompt, not on the batch or the rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uni_train.core.seeds import derive_seed, rng
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.flow.advantages import batch_advantages, gdpo_advantages, group_advantages, informative
from uni_train.flow.euler import euler_step
from uni_train.flow.rollout import roll_out
from uni_train.flow.schedule import Schedule
from uni_train.flow.window import Window
from uni_train.models.base import FlowPolicy, Request, ThoughtPolicy, expect_skill
from uni_train.models.transfer import upload
from uni_train.rewards.contract import Prompt, Reward, Scores, Scoring, columns_of, expect_rewarded, summed
from uni_train.training.flow_grpo.batches import NO_TOKEN, UNUSED
from uni_train.training.flow_grpo.config import GrpoConfig

Prompts = Callable[[int, int], Sequence[Prompt]]
"""Epoch and count -> so many prompts, a function of the epoch."""


@dataclass(frozen=True)
class PromptList:
    """A fixed list in shuffled order: every prompt once before any comes twice."""

    prompts: Sequence[Prompt]
    seed: int

    def __call__(self, epoch: int, count: int) -> list[Prompt]:
        """Prompts number epoch * count to epoch * count + count - 1 of the endless shuffled list."""
        turn, begin = divmod(epoch * count, len(self.prompts))
        shuffled: list[Prompt] = []
        while len(shuffled) < begin + count:
            order = list(self.prompts)
            rng("prompts", self.seed, turn).shuffle(order)
            shuffled, turn = shuffled + order, turn + 1
        return shuffled[begin : begin + count]


OnImages = Callable[[int, "ScoredImages"], None]
"""Called on every rank with the epoch and the rank's images after their rewards."""


@dataclass(frozen=True)
class Sampling:
    """What an epoch samples and how it is scored, beside the configuration.

    draw_rows: images sampled together. think_rows: thoughts written together. on_images: gets every epoch's images.
    """

    prompts: Prompts
    rewards: Sequence[Reward]
    draw_rows: int = 256
    think_rows: int = 128
    on_images: OnImages | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rollouts:
    """This rank's images of an epoch; tensors on the model's device.

    Attributes:
        images: numbers of the M images among all N.
        window: the random steps; None for DiffusionNFT and AWM.
        latents: [M, W + 1, G, C], before, between and after the random steps. log_probs: float32 [M, W]. means:
            [M, W, G, C] where the objective needs them, else [M, 0].
        final: float32 [M, G, C], the finished images. mask: bool [M, G, 1], which tokens belong to an image.
        thoughts: int64 [M, L], token ids, NO_TOKEN behind the end, on the host.
        thought_log_probs: float32 [M, L], once they are scored. Both [M, 0] without thoughts.
        requests: by number of the group, or of the image where each has its own thought.
        informative: bool [N], which images teach, on the CPU. advantages: [M].
        statistics: for the logs, over all ranks. seconds: of rollout and reward on this rank.
    """

    epoch: int
    images: range
    window: Window | None
    latents: Tensor
    log_probs: Tensor
    means: Tensor
    final: Tensor
    mask: Tensor
    thoughts: Tensor
    thought_log_probs: Tensor
    requests: Mapping[int, Request]
    informative: Tensor = UNUSED
    advantages: Tensor = UNUSED
    statistics: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredImages:
    """This rank's images of an epoch, to show. prompts: one a group. images: uint8 [H, W, 3]. scores: of images."""

    prompts: Sequence[Prompt]
    images: list[np.ndarray]
    scores: Scores


Context = Callable[[Sequence[int]], tuple[Any, Schedule]]
"""Numbers of images -> the condition and the noise levels that they are sampled under, a row for each image."""
Precision = Callable[[], AbstractContextManager[Any]]
"""Makes a context in which the model computes as in training, for example autocast."""


@torch.no_grad()
def sample_epoch(
    model: FlowPolicy,
    prompts: Sequence[Prompt],
    rewards: Sequence[Reward],
    config: GrpoConfig,
    stage: str,
    epoch: int,
    ranks: Ranks = ALONE,
    precision: Precision = nullcontext,
    draw_rows: int = 256,
    think_rows: int = 128,
) -> tuple[Rollouts, Context, ScoredImages]:
    """Sample and reward this rank's images of an epoch; advantages compare them with those of all ranks.

    Args:
        prompts: of all ranks. stage: part of every seed. draw_rows: images sampled together.
        think_rows: thoughts written together.
        precision: the trainer's, for conditions and velocities. Images are decoded without it.

    Raises:
        UserError: a prompt that cannot be read, a reward that fails, or half of all images have none.
    """
    k, groups = config.rollout.group_size, ranks.shard(len(prompts))
    rollouts, context, shown = ranks.on_all(
        lambda: _sample(model, prompts, rewards, config, stage, epoch, groups, precision, draw_rows, think_rows)
    )
    parts = ranks.gather((shown.scores.each, _image_statistics(shown.images, k)))
    each = np.concatenate([values for values, _ in parts])
    expect_rewarded(rewards, each, [prompts[i // k].id for i in range(len(each))])
    # With the batch as the baseline the mean of all images replaces missing values, too.
    scores = summed(rewards, each, (), len(each) if config.objective.baseline == "batch" else k)
    advantages, teach = advantages_of(torch.from_numpy(scores.filled), torch.from_numpy(scores.total), rewards, config)
    statistics = _reward_statistics(scores, k)
    statistics |= {name: float(np.mean([images[name] for _, images in parts])) for name in parts[0][1]}
    own = advantages[rollouts.images.start : rollouts.images.stop].to(model.device)
    return replace(rollouts, informative=teach, advantages=own, statistics=statistics), context, shown


def _sample(
    model: FlowPolicy, prompts: Sequence[Prompt], rewards: Sequence[Reward], config: GrpoConfig, stage: str,
    epoch: int, groups: range, precision: Precision, draw_rows: int, think_rows: int,
) -> tuple[Rollouts, Context, ScoredImages]:  # fmt: skip
    """Thoughts, conditions, images and rewards of some groups; advantages and statistics are still missing."""
    began, k, window = time.perf_counter(), config.rollout.group_size, config.window(epoch)
    images, own = range(groups.start * k, groups.stop * k), [prompts[i] for i in groups]
    columns = columns_of(own, k, images.start)
    requests = requests_of(prompts, config, stage, epoch, groups)
    each = [(requests[image // k], image % k) for image in images]
    draws = [replace(request, seed=derive_seed(request.seed, "picture", number)) for request, number in each]
    thoughts = token_table([[]] * len(each), 0)
    if config.thoughts is not None:
        thinker, ids = expect_skill(model, ThoughtPolicy), list[list[int]]()
        for begin in range(0, len(each), think_rows):
            with precision():
                ids += thinker.write_thoughts([thought_request(*pair) for pair in each[begin : begin + think_rows]])
            note()
        texts = columns["thought"] = [thinker.thought_text(row) for row in ids]
        requests = {n: replace(each[row][0], thought=texts[row]) for row, n in enumerate(images)}
        thoughts = token_table(ids, thinker.most_thought_ids)
    with precision():
        context = read_context(model, requests, images, config)
    shared = config.rollout.shared_noise
    noise = model.noise([draws[row // k * k] if shared else draw for row, draw in enumerate(draws)])
    parts: list[dict[str, Tensor]] = []
    drawn: list[np.ndarray] = []
    with Scoring(rewards, k) as scoring:
        for begin in range(0, len(draws), draw_rows):
            some = slice(begin, begin + draw_rows)
            condition, schedule = context(images[some])
            with precision():
                parts.append(_latents(model, noise[some], draws[some], condition, schedule, window, config))
            decoded = model.decode(parts[-1]["final"], condition)
            given = {name: values[some] for name, values in columns.items()}
            scoring.add([draw.prompt for draw in draws[some]], decoded, given)
            drawn += decoded
            note()  # progress, for ranks that wait for this one
        sampled = time.perf_counter()
        scores = scoring.scores()
    latents: dict[str, Any] = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    rollouts = Rollouts(
        epoch=epoch, images=images, window=window, requests=requests, thoughts=thoughts,
        thought_log_probs=torch.zeros(thoughts.shape, device=model.device),
        seconds={"rollout": sampled - began, "reward": time.perf_counter() - sampled},
        **latents,
    )  # fmt: skip
    return rollouts, context, ScoredImages(own, drawn, scores)


def _latents(
    model: FlowPolicy, x: Tensor, draws: Sequence[Request], condition: Any, schedule: Schedule,
    window: Window | None, config: GrpoConfig,
) -> dict[str, Tensor]:  # fmt: skip
    """From noise to images, with the random steps; fields of Rollouts by name."""
    mask, unused = (x != 0).any(-1, keepdim=True), x.new_zeros(len(x), 0)
    if window is None:
        for step, level in enumerate(schedule.before()):
            x = euler_step(x, model.velocity(x, level, condition), *schedule.step(step))
        return {"latents": unused, "log_probs": unused, "means": unused, "final": x.float(), "mask": mask}

    def noise(step: int) -> Tensor:
        seeds = [derive_seed(draw.seed, "step", step) for draw in draws]
        noises = [torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return upload(torch.stack(noises), x.device)

    run = roll_out(
        lambda x, level: model.velocity(x, level, condition), x, schedule,
        config.algorithm.step_rule(config.rollout.noise_level), window, noise, mask=mask,
        dtype=getattr(torch, config.rollout.latents), keep_means=config.algorithm.keeps_means,
    )  # fmt: skip
    means = unused if run.means is None else run.means
    return {"latents": run.latents, "log_probs": run.log_probs, "means": means, "final": run.final, "mask": mask}


def requests_of(
    prompts: Sequence[Prompt], config: GrpoConfig, stage: str, epoch: int, groups: range
) -> dict[int, Request]:
    """By number of the group, with the group's seed."""
    side, requests = config.rollout.size, {}
    for i in groups:
        seed = derive_seed(config.seed, stage, "group", epoch, prompts[i].id, i)
        size = None if side is None else (side, side)
        requests[i] = Request(prompts[i].id, prompts[i].text, prompts[i].images, seed=seed, size=size)
    return requests


def thought_request(request: Request, number: int) -> Request:
    """The request that the thought of image `number` of a group answers."""
    return replace(request, seed=derive_seed(request.seed, "thought", number), thought=None)


def token_table(ids: Sequence[Sequence[int]], length: int) -> Tensor:
    """int64 [R, length] of R thoughts, NO_TOKEN behind their ends; `length` may be 0."""
    rows = [[*row, *[NO_TOKEN] * (length - len(row))] for row in ids]
    return torch.tensor(rows, dtype=torch.long).reshape(len(ids), length)


def read_context(
    model: FlowPolicy, requests: Mapping[int, Request], images: Sequence[int], config: GrpoConfig
) -> Context:
    """The model reads the requests of some images, each once. `requests`: as in Rollouts."""
    numbers = sorted({image // config.images_a_request for image in images})
    condition = model.encode([requests[n] for n in numbers])
    levels = [model.schedule(condition, row=row, steps=config.rollout.steps) for row in range(len(numbers))]
    schedule = Schedule.together(levels).to(model.device)  # images of several sizes may have levels of their own

    def context(images: Sequence[int]) -> tuple[Any, Schedule]:
        rows = [numbers.index(image // config.images_a_request) for image in images]
        return condition.select(rows), schedule.select(rows)

    return context


# --- advantages and statistics --------------------------------------------------------------------------------------


def advantages_of(
    table: Tensor, totals: Tensor, rewards: Sequence[Reward], config: GrpoConfig
) -> tuple[Tensor, Tensor]:
    """Advantages float32 [N] of rewards [N, R] and their weighted sums [N]; and bool [N]: which images teach.

    Those of groups with equal rewards do not, unless the batch is the baseline. By cross-entropy those with a positive
    advantage teach: with the batch as the baseline and rewards of 0 and 1 all that are right.
    """
    objective, groups = config.objective, torch.arange(len(totals)) // config.rollout.group_size
    compared = torch.zeros_like(groups) if objective.baseline == "batch" else groups
    teach = informative(totals, compared)
    if objective.scale_rewards == "each":
        weights = torch.tensor([reward.weight for reward in rewards], dtype=torch.double)
        advantages, teach = gdpo_advantages(table, weights, groups), informative(table, compared).any(1)
    elif objective.baseline == "batch":
        advantages = batch_advantages(totals, scale_rewards=objective.scale_rewards)
    else:
        advantages = group_advantages(totals, groups, objective.scale_rewards)
    thoughts = config.learned_thoughts
    return advantages, teach & (advantages > 0) if thoughts and thoughts.loss == "cross_entropy" else teach


def _reward_statistics(scores: Scores, k: int) -> dict[str, float]:
    """Of all images: the sum's mean, deviation, quantiles; each reward by name, and the share of images without it."""
    total, each = scores.total, scores.each
    statistics = {"reward": float(total.mean()), "reward_std": float(total.std())}
    statistics |= {f"reward_p{p}": float(np.quantile(total, p / 100)) for p in (10, 50, 90)}
    statistics["best_of_group"] = float(total.reshape(-1, k).max(axis=1).mean())
    for r, name in enumerate(scores.names):
        known = each[~np.isnan(each[:, r]), r]
        if len(known) < len(each):
            statistics[f"missing/{name}"] = 1 - len(known) / len(each)
        if len(scores.names) > 1 and len(known):
            statistics[f"rewards/{name}/mean"] = float(known.mean())
    differ = informative(torch.from_numpy(total), torch.arange(len(total)) // k)
    return statistics | {"frac_reward_zero_std": float(1 - differ.float().mean())}


def _image_statistics(images: Sequence[np.ndarray], k: int) -> dict[str, float]:
    """Deviation within groups, brightness, contrast, in grey levels."""
    groups = (np.stack(images[i : i + k]).astype(np.float32) for i in range(0, len(images), k))
    return {
        "diversity": float(np.mean([float(group.std(axis=0).mean()) for group in groups])),
        "brightness": float(np.mean([image.mean() for image in images])),
        "contrast": float(np.mean([image.std() for image in images])),
    }
