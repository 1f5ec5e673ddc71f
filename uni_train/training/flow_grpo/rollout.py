"""An epoch's rollouts: images of prompts, their rewards and advantages.

    PromptList.epoch    the prompts: a function of seed and epoch
    requests_of         a seed for each prompt
    collect             sampling (flow.rollout), rewards (rewards.contract), advantages (flow.advantages)
    Rollouts            what the updates of the epoch train on

Shapes: N = prompts x group_size images on all ranks, M of them on this rank; W random steps each, latents [G, C]. The
images of a group are adjacent. Samples depend on weights, seed, epoch and prompt, not on the batch or the rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from uni_train.config.schema import GrpoConfig
from uni_train.data_gen.seeds import derive_seed, rng
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.flow.advantages import batch_advantages, gdpo_advantages, group_advantages, informative
from uni_train.flow.euler import euler_step
from uni_train.flow.rollout import roll_out
from uni_train.flow.schedule import Schedule
from uni_train.flow.steps import StepRule, step_rule
from uni_train.flow.window import Window, epoch_window, sliding_window
from uni_train.models.base import Request, UnifiedModel
from uni_train.rewards.contract import Reward, Scores, Scoring, expect_rewarded, summed

NOISE_LEVELS = {"flow_grpo": 0.7, "fast": 0.7, "cps": 0.7, "dance": 0.3, "guard": 0.7, "mix": 0.7, "dppo": 0.7}
"""The published ones, where `rollout.noise_level` is null."""
NO_TOKEN = -1
"""In place of a token behind the end of a thought."""

# --- prompts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, of `group_size` images.

    Attributes:
        id: names it in errors, and decides its seeds.
        images: uint8 [H, W, 3] each, shown before the text.
        columns: further inputs of rewards (see rewards.contract).
    """

    id: str
    text: str
    images: tuple[np.ndarray, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)


class Prompts(Protocol):
    """A list of prompts, or a task that generates new ones (recipes.flow_grpo.training.TaskPrompts)."""

    def epoch(self, epoch: int, count: int) -> Sequence[Prompt]:
        """`count` prompts, a function of the epoch."""
        ...


@dataclass(frozen=True)
class PromptList:
    """A fixed list in shuffled order: every prompt once before any comes twice."""

    prompts: Sequence[Prompt]
    seed: int

    def epoch(self, epoch: int, count: int) -> list[Prompt]:
        """Prompts number epoch * count to epoch * count + count - 1 of the endless shuffled list."""
        places = [divmod(place, len(self.prompts)) for place in range(epoch * count, (epoch + 1) * count)]
        orders = {turn: self._order(turn) for turn in {turn for turn, _ in places}}
        return [self.prompts[orders[turn][at]] for turn, at in places]

    def _order(self, turn: int) -> list[int]:
        order = list(range(len(self.prompts)))
        rng("prompts", self.seed, turn).shuffle(order)
        return order


def requests_of(
    prompts: Sequence[Prompt], config: GrpoConfig, stage: str, epoch: int, groups: Iterable[int]
) -> list[Request]:
    """The request of each of some groups, with the seed of the group."""
    size = None if config.rollout.size is None else (config.rollout.size, config.rollout.size)
    return [
        Request(
            prompts[i].id,
            prompts[i].text,
            prompts[i].images,
            seed=derive_seed(config.seed, stage, "group", epoch, prompts[i].id, i),
            size=size,
        )
        for i in groups
    ]


def thought_request(request: Request, number: int) -> Request:
    """The request that the thought of image `number` of a group answers."""
    return replace(request, seed=derive_seed(request.seed, "thought", number), thought=None)


def token_table(ids: Sequence[Sequence[int]], length: int) -> Tensor:
    """int64 [R, length] of R thoughts, NO_TOKEN behind their ends; `length` may be 0."""
    rows = [[*row, *[NO_TOKEN] * (length - len(row))] for row in ids]
    return torch.tensor(rows, dtype=torch.long).reshape(len(ids), length)


# --- the rollouts of an epoch ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """This rank's images of an epoch; tensors on the model's device.

    Attributes:
        images: numbers of the M images among all N.
        window: the random steps; None for DiffusionNFT and AWM.
        latents: [M, W + 1, G, C], before, between and after the random steps. log_probs: float32 [M, W]. means:
            [M, W, G, C] where the objective needs them, else [M, 0].
        final: float32 [M, G, C], the finished images. mask: bool [M, G, 1], which tokens belong to an image.
        thoughts: int64 [M, L], token ids, NO_TOKEN behind the end. thought_log_probs: float32 [M, L], once they are
            scored. [M, 0] without thoughts.
        rewards: float64 [N, R] and totals [N], on the CPU. advantages: [M].
        requests: by number of the group, or of the image where each has its own thought.
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
    rewards: Tensor
    totals: Tensor
    advantages: Tensor
    thoughts: Tensor
    thought_log_probs: Tensor
    requests: Mapping[int, Request] = field(default_factory=dict)
    statistics: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """The condition and the noise levels of images, a row for each request.

    Attributes:
        rows: number of a group, or of an image where each has its own thought -> its row. images_a_request: of each.
    """

    condition: Any
    schedule: Schedule
    rows: Mapping[int, int]
    images_a_request: int

    def select(self, images: Sequence[int]) -> tuple[Any, Schedule]:
        """Condition and schedule with a row for each of some images, by their numbers."""
        rows = [self.rows[image // self.images_a_request] for image in images]
        return self.condition.select(rows), self.schedule.select(rows)


def read_context(model: UnifiedModel, requests: Mapping[int, Request], config: GrpoConfig) -> Context:
    """The model reads requests, by number of the group or image."""
    condition = model.encode(list(requests.values()))
    schedule = schedule_of(model, condition, len(requests), config.rollout.steps)
    return Context(condition, schedule, {n: row for row, n in enumerate(requests)}, config.images_a_request)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredImages:
    """This rank's images of an epoch, to show. prompts: one a group. images: uint8 [H, W, 3]. scores: of images."""

    prompts: Sequence[Prompt]
    images: list[np.ndarray]
    scores: Scores


Precision = Callable[[], AbstractContextManager[Any]]
"""Makes a context in which the model computes as in training, for example autocast."""


# --- sampling, rewards, advantages ----------------------------------------------------------------------------------


@torch.no_grad()
def collect(
    model: UnifiedModel,
    prompts: Sequence[Prompt],
    rewards: Sequence[Reward],
    config: GrpoConfig,
    stage: str,
    epoch: int,
    ranks: Ranks = ALONE,
    precision: Precision = nullcontext,
    draw_rows: int = 256,
) -> tuple[Rollouts, Context, ScoredImages]:
    """Sample and reward this rank's images of an epoch; advantages compare them with those of all ranks.

    Args:
        prompts: of all ranks. stage: part of every seed. draw_rows: images sampled together.
        precision: the trainer's, for conditions and velocities. Images are decoded without it.

    Raises:
        UserError: a prompt that cannot be read, a reward that fails, or half of all images have none.
    """
    k, groups = config.rollout.group_size, ranks.shard(len(prompts))

    def sample() -> tuple[_Sampler, _Batch, float]:
        began = time.perf_counter()
        sampler = _Sampler(model, prompts, rewards, config, stage, epoch, groups, precision, draw_rows)
        return sampler, sampler.sample(), time.perf_counter() - began

    sampler, batch, seconds = ranks.on_all(sample)
    scores = batch.scores
    images = _image_statistics(batch.images, k)
    parts = ranks.gather((scores.each, scores.filled, scores.total, images))
    each, filled, total = (np.concatenate([part[column] for part in parts]) for column in range(3))
    expect_rewarded(rewards, each, [prompts[i // k].id for i in range(len(each))])
    if config.objective.baseline == "batch":  # the mean of all images replaces missing values, too
        whole = summed(rewards, each, (), len(each))
        filled, total = whole.filled, whole.total
    totals, table = torch.from_numpy(total), torch.from_numpy(filled)
    members = torch.arange(len(prompts)).repeat_interleave(k)
    statistics = _reward_statistics(scores.names, each, total, k)
    statistics["frac_reward_zero_std"] = float(1 - informative(totals, members).float().mean())
    statistics |= {name: float(np.mean([part[3][name] for part in parts])) for name in parts[0][3]}
    own = sampler.images
    rollouts = Rollouts(
        epoch=epoch,
        images=own,
        window=sampler.window,
        rewards=table,
        totals=totals,
        advantages=advantages_of(table, totals, members, rewards, config)[own.start : own.stop].to(model.device),
        thoughts=sampler.thoughts.to(model.device),
        thought_log_probs=torch.zeros(sampler.thoughts.shape, device=model.device),
        requests=sampler.requests,
        statistics=statistics,
        seconds={"rollout": seconds - batch.waited, "reward": batch.waited},
        **batch.latents,
    )
    return rollouts, sampler.context, ScoredImages([prompts[i] for i in groups], batch.images, scores)


def advantages_of(
    table: Tensor, totals: Tensor, groups: Tensor, rewards: Sequence[Reward], config: GrpoConfig
) -> Tensor:
    """float32 [N], of rewards [N, R] and their weighted sums [N]; groups: int64 [N]."""
    objective = config.objective
    if objective.scale_rewards == "each":
        weights = torch.tensor([reward.weight for reward in rewards], dtype=torch.double)
        return gdpo_advantages(table, weights, groups)
    if objective.baseline == "batch":
        return batch_advantages(totals, scale_rewards=objective.scale_rewards)
    return group_advantages(totals, groups, objective.scale_rewards)


def rule_of(config: GrpoConfig) -> StepRule:
    """The random step of a variant."""
    level = config.rollout.noise_level
    level = NOISE_LEVELS[config.variant] if level is None else level
    if config.variant == "cps":
        return step_rule("cps", level)
    return step_rule("dance" if config.variant == "dance" else "flow_grpo", level)


def window_of(config: GrpoConfig, epoch: int) -> Window | None:
    """The random steps of an epoch: fixed, drawn by seed and epoch (fast), or sliding (mix)."""
    low, high = config.bounds
    match config.variant:
        case "diffusion_nft" | "awm":
            return None
        case "fast":
            return epoch_window(config.seed, epoch, config.window_size, (low, high))
        case "mix":
            return sliding_window(epoch, config.window_size, (low, high), config.rollout.window_every)
        case _:
            return Window(low, config.window_size)


def schedule_of(model: UnifiedModel, condition: Any, rows: int, steps: int) -> Schedule:
    """The noise levels of the rows of a condition; images of several sizes may have levels of their own."""
    each = [model.schedule(condition, row=row, steps=steps) for row in range(rows)]
    return Schedule.together(each).to(model.device)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """A rank's images of an epoch.

    Attributes:
        latents: fields of Rollouts by name. waited: seconds for rewards behind the last image.
    """

    latents: dict[str, Tensor]
    images: list[np.ndarray]
    scores: Scores
    waited: float


class _Sampler:
    """Samples and rewards the images of some groups. Making it writes their thoughts and reads their conditions."""

    def __init__(
        self,
        model: UnifiedModel,
        prompts: Sequence[Prompt],
        rewards: Sequence[Reward],
        config: GrpoConfig,
        stage: str,
        epoch: int,
        groups: range,
        precision: Precision,
        draw_rows: int,
    ) -> None:
        self.model, self.rewards, self.config, self.precision = model, rewards, config, precision
        self.draw_rows, self.window, k = draw_rows, window_of(config, epoch), config.rollout.group_size
        self.images = range(groups.start * k, groups.stop * k)
        own = [prompts[i] for i in groups]
        self.texts, self.columns = [p.text for p in own for _ in range(k)], columns_of(own, k, self.images.start)
        requests = requests_of(prompts, config, stage, epoch, groups)
        each = [(request, number) for request in requests for number in range(k)]
        self.requests, length = dict(zip(groups, requests, strict=True)), 0
        ids: list[list[int]] = [[] for _ in each]
        if config.thoughts is not None:
            length, ids = model.most_thought_ids, self._thoughts([thought_request(*pair) for pair in each])
            texts = [model.thought_text(row) for row in ids]
            self.requests = {
                image: replace(request, thought=text)
                for image, (request, _), text in zip(self.images, each, texts, strict=True)
            }
            self.columns["thought"] = texts
        self.thoughts = token_table(ids, length)
        with precision():
            self.context = read_context(model, self.requests, config)
        self.draws = [replace(request, seed=derive_seed(request.seed, "picture", number)) for request, number in each]
        shared = config.rollout.shared_noise
        self.noise = model.noise([self.draws[row // k * k] if shared else draw for row, draw in enumerate(self.draws)])

    def _thoughts(self, requests: Sequence[Request]) -> list[list[int]]:
        ids: list[list[int]] = []
        for begin in range(0, len(requests), self.draw_rows):
            with self.precision():
                ids += self.model.write_thoughts(requests[begin : begin + self.draw_rows])
            note()
        return ids

    def sample(self) -> _Batch:
        """All images, `rollout.group_size` adjacent ones a group."""
        rows = range(len(self.draws))
        parts: list[dict[str, Tensor]] = []
        images: list[np.ndarray] = []
        with Scoring(self.rewards, self.config.rollout.group_size) as scoring:
            for begin in range(0, len(rows), self.draw_rows):
                some = list(rows[begin : begin + self.draw_rows])
                condition, schedule = self.context.select([self.images[row] for row in some])
                with self.precision():
                    parts.append(self._latents(some, condition, schedule))
                decoded = self.model.decode(parts[-1]["final"], condition)
                columns = {name: [values[row] for row in some] for name, values in self.columns.items()}
                scoring.add([self.texts[row] for row in some], decoded, columns)
                images += decoded
                note()  # progress, for ranks that wait for this one
            sampled = time.perf_counter()
            scores = scoring.scores()
        latents = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        return _Batch(latents, images, scores, time.perf_counter() - sampled)

    def _latents(self, rows: Sequence[int], condition: Any, schedule: Schedule) -> dict[str, Tensor]:
        """From noise to images, with the random steps; fields of Rollouts by name."""
        x = self.noise[rows]
        mask, unused = (x != 0).any(-1, keepdim=True), x.new_zeros(len(x), 0)
        if self.window is None:
            for step in range(schedule.steps):
                t, t_next = schedule.step(step)
                x = euler_step(x, self.model.velocity(x, t, condition), t, t_next)
            return {"latents": unused, "log_probs": unused, "means": unused, "final": x.float(), "mask": mask}

        def noise(step: int) -> Tensor:
            seeds = [derive_seed(self.draws[row].seed, "step", step) for row in rows]
            noises = [torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in seeds]
            return torch.stack(noises).to(x.device)

        run = roll_out(
            lambda x, t: self.model.velocity(x, t, condition),
            x,
            schedule,
            rule_of(self.config),
            self.window,
            noise,
            mask=mask,
            dtype=getattr(torch, self.config.rollout.latents),
            keep_means=self.config.keeps_means,
        )
        means = unused if run.means is None else run.means
        return {"latents": run.latents, "log_probs": run.log_probs, "means": means, "final": run.final, "mask": mask}


def columns_of(prompts: Sequence[Prompt], k: int, first: int) -> dict[str, list[Any]]:
    """The columns of rewards, one value an image; `place` is its number among the epoch's images of all ranks."""
    each = [prompt for prompt in prompts for _ in range(k)]
    columns: dict[str, list[Any]] = {"id": [prompt.id for prompt in each]}
    columns["place"] = list(range(first, first + len(each)))
    columns["images"] = [list(prompt.images) for prompt in each]
    names = dict.fromkeys(name for prompt in prompts for name in prompt.columns)
    return columns | {name: [prompt.columns.get(name) for prompt in each] for name in names}


def _reward_statistics(names: Sequence[str], each: np.ndarray, total: np.ndarray, k: int) -> dict[str, float]:
    """Of rewards `each` [N, R] and their sum `total` [N]: mean, deviation, quantiles; each by name, and the share of
    images that lack it."""
    low, median, high = np.quantile(total, [0.1, 0.5, 0.9]).tolist()
    statistics = {
        "reward": float(total.mean()),
        "reward_std": float(total.std()),
        "reward_p10": low,
        "reward_p50": median,
        "reward_p90": high,
        "best_of_group": float(total.reshape(-1, k).max(axis=1).mean()),
    }
    for r, name in enumerate(names):
        known = each[~np.isnan(each[:, r]), r]
        if len(known) < len(each):
            statistics[f"missing/{name}"] = 1 - len(known) / len(each)
        if len(names) > 1 and len(known):
            statistics[f"rewards/{name}/mean"] = float(known.mean())
    return statistics


def _image_statistics(images: Sequence[np.ndarray], k: int) -> dict[str, float]:
    """Deviation within groups, brightness, contrast, in grey levels."""
    deviations = [
        float(np.stack(images[i : i + k]).astype(np.float32).std(axis=0).mean()) for i in range(0, len(images), k)
    ]
    return {
        "diversity": float(np.mean(deviations)),
        "brightness": float(np.mean([image.mean() for image in images])),
        "contrast": float(np.mean([image.std() for image in images])),
    }
