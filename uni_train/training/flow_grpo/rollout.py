"""Rollouts: an epoch's prompts, the images sampled for them, their rewards and advantages.

    PromptList.epoch    which prompts: a function of seed and epoch
    requests_of         one seed for each prompt
    collect             sample (flow.rollout), reward (rewards.contract), compare within groups (flow.advantages)
    Rollouts            what the updates of the epoch need; kept in checkpoints

Shapes: N = prompts x group_size images on all ranks, M of them on this rank, W random steps each, latents [G, C]. The
images of a group stand in a row. What is sampled depends on the weights, the run's seed, the epoch and the prompt, not
on the batch it is sampled in or on the rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
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
from uni_train.flow.window import SlidingWindow, Window, epoch_window
from uni_train.models.base import Request, UnifiedModel
from uni_train.rewards.contract import Reward, Scores, Scoring, summed
from uni_train.training.flow_grpo.thoughts import table

NOISE_LEVELS = {"flow_grpo": 0.7, "fast": 0.7, "cps": 0.7, "dance": 0.3, "guard": 0.7, "mix": 0.7, "dppo": 0.7}
"""Published ones, where `rollout.noise_level` is not given."""

# --- prompts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, asked `group_size` times.

    Attributes:
        id: names it in errors, and decides its seeds.
        images: uint8 [H, W, 3] each, shown before the text.
        columns: what rewards are told beside it (see rewards.contract).
    """

    id: str
    text: str
    images: tuple[np.ndarray, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)


class Prompts(Protocol):
    """Where prompts come from: a list, or a task that generates new ones (recipes.flow_grpo.training.TaskPrompts)."""

    def epoch(self, epoch: int, count: int) -> Sequence[Prompt]:
        """`count` prompts, the same whenever they are asked for."""
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
    prompts: Sequence[Prompt],
    config: GrpoConfig,
    stage: str,
    epoch: int,
    groups: Sequence[int],
    thoughts: Sequence[str] | None = None,
) -> list[Request]:
    """One request for each of some groups, as `encode` reads it; its seed is that of the group.

    Args:
        groups: a group may come several times, for images with `thoughts` of their own, one each.
    """
    asked = [
        Request(
            prompts[i].id,
            prompts[i].text,
            prompts[i].images,
            seed=derive_seed(config.seed, stage, "group", epoch, prompts[i].id, i),
            size=None if config.rollout.size is None else (config.rollout.size, config.rollout.size),
        )
        for i in groups
    ]
    if thoughts is None:
        return asked
    return [replace(one, thought=thought) for one, thought in zip(asked, thoughts, strict=True)]


def thinking(request: Request, number: int) -> Request:
    """The request of a group as the thought of its image `number` is written for."""
    return replace(request, seed=derive_seed(request.seed, "thought", number), thought=None)


# --- what an epoch keeps --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """Tensors on the model's device.

    Attributes:
        window: the random steps (None: the forward process has none).
        images: the numbers of this rank's images among all.
        latents: [M, W + 1, G, C] before, between and after them. log_probs: float32 [M, W]. means: [M, W, G, C], if the
            objective needs them.
        final: float32 [M, G, C], clean. mask: bool [M, G, 1], which tokens belong to an image.
        thoughts: int64 [M, L], token ids of each image's thought (thoughts.py); thought_log_probs: float32 [M, L], once
            they are scored. [M, 0] where there are none.
        rewards: float64 [N, R] and totals [N], of all ranks. advantages: [M].
        statistics: numbers for the logs, over all ranks. seconds: of rollout and reward on this rank.
    """

    epoch: int
    images: Sequence[int]
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
    statistics: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """On the CPU."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values |= {name: value.cpu() for name, value in values.items() if isinstance(value, Tensor)}
        return values | {"window": None if self.window is None else (self.window.start, self.window.size)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Rollouts:
        """On the CPU."""
        return cls(**{**state, "window": None if state["window"] is None else Window(*state["window"])})

    def to(self, device: torch.device) -> Rollouts:
        """What belongs to images on a device; rewards stay where advantages are computed, on the CPU."""
        return replace(self, **{name: getattr(self, name).to(device) for name in OF_IMAGES})


OF_IMAGES = ("latents", "log_probs", "means", "final", "mask", "advantages", "thoughts", "thought_log_probs")
"""Tensors of Rollouts with a row for each of `images`."""


def resharded(states: Sequence[Mapping[str, Any]], ranks: Ranks) -> dict[str, Any]:
    """This rank's part of an epoch's rollouts, which were those of `len(states)` ranks."""
    if len(states) == ranks.world_size:
        return dict(states[ranks.rank])
    longest = max(state["final"].shape[-2] for state in states)
    everything = {name: torch.cat([padded(state[name], longest) for state in states]) for name in OF_IMAGES}
    mine = ranks.shard(len(everything["final"]))
    own = {name: value[mine.start : mine.stop] for name, value in everything.items()}
    return {**states[0], **own, "images": tuple(mine)}


def padded(value: Tensor, tokens: int) -> Tensor:
    """[..., G, C] with zeros up to so many tokens; what has no tokens ([M, W], [M, 0]) as it is."""
    missing = tokens - value.shape[-2] if value.ndim > 2 else 0
    return torch.nn.functional.pad(value, (0, 0, 0, missing)) if missing else value


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """This rank's fresh images, for records and for people. prompts: one a group. images, scores: of its images."""

    prompts: Sequence[Prompt]
    images: list[np.ndarray]
    scores: Scores


Precision = Callable[[], AbstractContextManager[Any]]
"""Makes a context that the model computes in: autocast, where training has it."""


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
) -> tuple[Rollouts, Any, Drawn]:
    """Sample and reward this rank's images of an epoch; rewards and advantages are those of all ranks.

    Args:
        prompts: those of all ranks.
        stage: part of every seed.
        draw_rows: images drawn together.
        precision: the trainer's, for what the model reads and for its velocities. Images are decoded without it.

    Returns:
        the rollouts, the condition they were sampled under (one row a group), and the images with their scores.

    Raises:
        UserError: a prompt that cannot be read, or a reward that fails.
    """
    k, window = config.rollout.group_size, window_of(config, epoch)
    own = [prompts[i] for i in ranks.shard(len(prompts))]
    first = ranks.shard(len(prompts)).start * k
    requests = requests_of(prompts, config, stage, epoch, ranks.shard(len(prompts)))
    sampled, condition = ranks.on_all(
        lambda: _sample_and_reward(model, own, requests, rewards, config, window, first, precision, draw_rows)
    )
    scores, images = sampled.scores, sampled.images

    seen = _image_statistics(images, k)
    if config.rollout.complete != "all":
        seen["completed"] = sampled.completed
    parts = ranks.gather((scores.each, scores.filled, scores.total, seen))
    each, filled, total = (np.concatenate([part[column] for part in parts]) for column in range(3))
    if config.objective.baseline == "batch":  # the mean of all images stands for what is missing, too
        everyone = summed(rewards, each, (), len(each))
        filled, total = everyone.filled, everyone.total
    totals, table = torch.from_numpy(total), torch.from_numpy(filled)
    groups = torch.arange(len(prompts)).repeat_interleave(k)
    if config.objective.scale_rewards == "each":
        weights = torch.tensor([reward.weight for reward in rewards], dtype=torch.double)
        advantages = gdpo_advantages(table, weights, groups)
    elif config.objective.baseline == "batch":
        advantages = batch_advantages(totals, scale_rewards=config.objective.scale_rewards)
    else:
        advantages = group_advantages(totals, groups, config.objective.scale_rewards)

    statistics = _reward_statistics(scores.names, each, total, k)
    statistics["frac_reward_zero_std"] = float(1 - informative(totals, groups).float().mean())
    statistics |= {name: float(np.mean([part[3][name] for part in parts])) for name in parts[0][3]}
    rollouts = Rollouts(
        epoch=epoch,
        images=tuple(range(first, first + len(images))),
        window=window,
        rewards=table,
        totals=totals,
        advantages=advantages[first : first + len(images)].to(model.device),
        statistics=statistics,
        seconds={"rollout": sampled.seconds - sampled.waited, "reward": sampled.waited},
        **sampled.latents,
    )
    return rollouts, condition, Drawn(own, images, scores)


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
            slid = SlidingWindow(config.window_size, high - low, every=config.rollout.window_every).at(epoch)
            return Window(low + slid.start, slid.size)
        case _:
            return Window(low, config.window_size)


def schedule_of(model: UnifiedModel, condition: Any, rows: int, steps: int) -> Schedule:
    """The noise levels of the rows of a condition; images of several sizes may have levels of their own."""
    each = [model.schedule(condition, row=row, steps=steps) for row in range(rows)]
    return Schedule.together(each).to(model.device)


def _sample_and_reward(
    model: UnifiedModel,
    prompts: Sequence[Prompt],
    requests: Sequence[Request],
    rewards: Sequence[Reward],
    config: GrpoConfig,
    window: Window | None,
    first: int,
    precision: Precision,
    draw_rows: int,
) -> tuple[_Part, Any]:
    """What one rank samples and rewards by itself, and the condition that it is sampled under."""
    began = time.perf_counter()
    k = config.rollout.group_size
    # What a row of the condition stands for: a group, or an image where each has its own thought.
    each, shared = list(requests), k
    ids: list[list[int]] = [[] for _ in range(len(requests) * k)]
    if config.thoughts is not None:
        with precision():
            ids = _thoughts(model, [thinking(r, j) for r in requests for j in range(k)], draw_rows)
        texts = iter(map(model.thought_text, ids))
        each, shared = [replace(r, thought=next(texts)) for r in requests for _ in range(k)], 1
    with precision():
        condition = model.encode(each)
    columns = columns_of(prompts, k, first)
    if config.thoughts is not None:
        columns["thought"] = [one.thought for one in each]
    asked = [replace(r, seed=derive_seed(r.seed, "picture", j)) for r in requests for j in range(k)]
    first_of = range(0, len(asked), k)
    begins = [asked[row] for row in first_of for _ in range(k)] if config.rollout.shared_noise else asked
    drawing = _Drawing(
        model=model,
        prompts=[one for one in prompts for _ in range(k)],
        columns=columns,
        requests=asked,
        noise=model.noise(begins),
        condition=condition,
        shared=shared,
        schedule=schedule_of(model, condition, len(each), config.rollout.steps),
        window=window,
        rewards=rewards,
        config=config,
        precision=precision,
        draw_rows=draw_rows,
    )
    if config.rollout.complete == "all":
        part = drawing.draw(range(len(asked)), k)
    else:
        part = _completed(drawing, len(requests), k)
    most = model.most_thought_ids if config.thoughts is not None else 0
    part.latents["thoughts"] = table(ids, most).to(model.device)
    part.latents["thought_log_probs"] = torch.zeros(len(ids), most, device=model.device)
    return replace(part, seconds=time.perf_counter() - began), condition


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some images of an epoch.

    Attributes:
        latents: fields of Rollouts by name.
        waited: seconds for rewards behind the last image. seconds: for everything.
        completed: share of groups that are drawn whole.
    """

    latents: dict[str, Tensor]
    images: list[np.ndarray]
    scores: Scores
    waited: float
    completed: float = 1.0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Drawing:
    """What images of an epoch are drawn and rewarded by; prompts, columns, requests and noise have a row an image, the
    condition one for each `shared` of them."""

    model: UnifiedModel
    prompts: Sequence[Prompt]
    columns: Mapping[str, Sequence[Any]]
    requests: Sequence[Request]
    noise: Tensor
    condition: Any
    shared: int
    schedule: Schedule
    window: Window | None
    rewards: Sequence[Reward]
    config: GrpoConfig
    precision: Precision
    draw_rows: int

    def draw(self, rows: Sequence[int], group: int) -> _Part:
        """Those of some rows; `group`: how many of a group they have, in a row."""
        parts: list[dict[str, Tensor]] = []
        images: list[np.ndarray] = []
        with Scoring(self.rewards, group) as scoring:
            for begin in range(0, len(rows), self.draw_rows):
                some = list(rows[begin : begin + self.draw_rows])
                units = [row // self.shared for row in some]
                under, schedule = self.condition.select(units), self.schedule.select(units)
                asked = [self.requests[row] for row in some]
                with self.precision():
                    part = _sample(self.model, self.noise[some], under, asked, schedule, self.window, self.config)
                decoded = self.model.decode(part["final"], under)
                told = {name: [values[row] for row in some] for name, values in self.columns.items()}
                scoring.add([self.prompts[row].text for row in some], decoded, told)
                images += decoded
                parts.append(part)
                note()  # that it goes on, for ranks that wait for this one
            sampled = time.perf_counter()
            scores = scoring.scores()
        latents = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        return _Part(latents, images, scores, time.perf_counter() - sampled)


def _completed(drawing: _Drawing, groups: int, k: int) -> _Part:
    """A first half of each group, and the second half of groups that `rollout.complete` names.

    In the others each image of the first half stands for one of the second, too: they are flat either way, and their
    statistics are those of the half.
    """
    half = k // 2
    rows = range(groups * k)
    first = [row for row in rows if row % k < half]
    one = drawing.draw(first, half)
    more = unfinished(one.scores.total.reshape(groups, half), drawing.rewards, drawing.config.rollout.complete)
    rest = [row for row in rows if row % k >= half and more[row // k]]
    parts = [one, drawing.draw(rest, half)] if rest else [one]
    place = {row: at for at, row in enumerate([*first, *rest])}
    at = [place.get(row, place.get(row - half, -1)) for row in rows]
    latents = {name: torch.cat([part.latents[name] for part in parts])[at] for name in one.latents}
    images = [image for part in parts for image in part.images]
    each = np.concatenate([part.scores.each for part in parts])[at]
    verdicts = [verdict for part in parts for verdict in part.scores.verdicts]
    scores = summed(drawing.rewards, each, tuple(verdicts[i] for i in at) if verdicts else (), k)
    return _Part(latents, [images[i] for i in at], scores, sum(part.waited for part in parts), float(more.mean()))


def unfinished(first: np.ndarray, rewards: Sequence[Reward], complete: str) -> np.ndarray:
    """bool [G]: groups to be completed, by the summed rewards [G, k/2] of their first images.

    mixed: those whose rewards differ. unsolved: also those that are equal, but below what images are worth that every
    reward gives 1.
    """
    differ = first.max(axis=1) > first.min(axis=1)
    if complete == "mixed":
        return differ
    solved = sum(max(reward.weight, 0.0) for reward in rewards)
    return differ | (first[:, 0] < solved)


def _thoughts(model: UnifiedModel, requests: Sequence[Request], together: int) -> list[list[int]]:
    found: list[list[int]] = []
    for begin in range(0, len(requests), together):
        found += model.write_thoughts(requests[begin : begin + together])
        note()
    return found


def _sample(
    model: UnifiedModel,
    x: Tensor,
    condition: Any,
    requests: Sequence[Request],
    schedule: Schedule,
    window: Window | None,
    config: GrpoConfig,
) -> dict[str, Tensor]:
    """From noise x [B, G, C] to images, with the random steps remembered; fields of Rollouts by name."""
    mask = (x != 0).any(-1, keepdim=True)
    blank = x.new_zeros(len(x), 0)
    if window is None:
        for step in range(schedule.steps):
            t, t_next = schedule.step(step)
            x = euler_step(x, model.velocity(x, t, condition), t, t_next)
        return {"latents": blank, "log_probs": blank, "means": blank, "final": x.float(), "mask": mask}

    def noise(step: int) -> Tensor:
        rows = [
            torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(derive_seed(r.seed, "step", step)))
            for r in requests
        ]
        return torch.stack(rows).to(x.device)

    run = roll_out(
        lambda x, t: model.velocity(x, t, condition),
        x,
        schedule,
        rule_of(config),
        window,
        noise,
        mask=mask,
        dtype=getattr(torch, config.rollout.latents),
        keep_means=config.keeps_means,
    )
    means = blank if run.means is None else run.means
    return {"latents": run.latents, "log_probs": run.log_probs, "means": means, "final": run.final, "mask": mask}


def columns_of(prompts: Sequence[Prompt], k: int, first: int) -> dict[str, list[Any]]:
    """What rewards are told, one value an image; `place` is its number in the epoch, whatever rank has it."""
    names = dict.fromkeys(name for one in prompts for name in one.columns)
    columns: dict[str, list[Any]] = {"id": [one.id for one in prompts for _ in range(k)]}
    columns["place"] = list(range(first, first + len(prompts) * k))
    columns["images"] = [list(one.images) for one in prompts for _ in range(k)]
    return columns | {name: [one.columns.get(name) for one in prompts for _ in range(k)] for name in names}


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
