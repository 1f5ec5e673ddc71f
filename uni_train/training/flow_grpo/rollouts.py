"""The pictures of an epoch: drawn by today's weights, rewarded, and kept until the updates on them are done.

N = groups x group_size pictures of which this rank has M, W random steps each, latents [G, C]. The pictures of a group
stand in a row. What is drawn depends on the weights, the run's seed, the epoch and the prompt, not on how many pictures
are drawn together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from data_gen.seeds import derive_seed
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.errors import UserError
from uni_train.flow.advantages import gdpo_advantages, group_advantages, informative
from uni_train.flow.euler import euler_step
from uni_train.flow.rollout import roll_out
from uni_train.flow.schedule import Schedule
from uni_train.flow.steps import StepRule, step_rule
from uni_train.flow.window import SlidingWindow, Window, epoch_window
from uni_train.models.base import Request, UnifiedModel
from uni_train.rewards.contract import Reward, Scores, Scoring
from uni_train.training.flow_grpo.prompts import Prompt
from uni_train.training.flow_grpo.settings import NOISE_LEVELS, FlowGrpoSettings


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """Tensors on the model's device.

    Attributes:
        window: the random steps (None: diffusion_nft has none).
        first: the number of this rank's first picture among all.
        latents: [M, W + 1, G, C] before, between and after them. log_probs: float32 [M, W]. means: [M, W, G, C], if the
            objective needs them.
        final: float32 [M, G, C], clean. mask: bool [M, G, 1], which tokens belong to a picture.
        rewards: float64 [N, R] and totals [N], of all ranks. advantages: [M].
    """

    epoch: int
    first: int
    window: Window | None
    latents: Tensor
    log_probs: Tensor
    means: Tensor
    final: Tensor
    mask: Tensor
    rewards: Tensor
    totals: Tensor
    advantages: Tensor

    @property
    def mine(self) -> range:
        """The numbers of this rank's pictures among all."""
        return range(self.first, self.first + len(self.final))

    def state_dict(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"window": None if self.window is None else (self.window.start, self.window.size)}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], device: torch.device) -> Rollouts:
        values: dict[str, Any] = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in state.items()}
        return cls(**values | {"window": None if state["window"] is None else Window(*state["window"])})


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What else is known of an epoch's pictures, as long as they are fresh: for records and for people.

    Attributes:
        prompts: one a group of this rank. images, scores: of its pictures. statistics: numbers for the log, over all
            ranks. seconds: rollout and reward.
    """

    prompts: Sequence[Prompt]
    images: list[np.ndarray]
    scores: Scores
    statistics: dict[str, float]
    seconds: dict[str, float]


def rule_of(settings: FlowGrpoSettings) -> StepRule:
    """The random step of a variant."""
    level = NOISE_LEVELS[settings.variant] if settings.noise_level is None else settings.noise_level
    if settings.variant == "cps":
        return step_rule("cps", level)
    return step_rule("dance" if settings.variant == "dance" else "flow_grpo", level)


def window_of(settings: FlowGrpoSettings, epoch: int) -> Window | None:
    """The random steps of an epoch: fixed, drawn by seed and epoch (fast), or sliding (mix)."""
    low, high = settings.bounds
    match settings.variant:
        case "diffusion_nft":
            return None
        case "fast":
            return epoch_window(settings.seed, epoch, settings.window_size, (low, high))
        case "mix":
            slid = SlidingWindow(settings.window_size, high - low, every=settings.window_every).at(epoch)
            return Window(low + slid.start, slid.size)
        case _:
            return Window(low, settings.window_size)


def requests_of(
    prompts: Sequence[Prompt], settings: FlowGrpoSettings, epoch: int, ranks: Ranks = ALONE
) -> list[Request]:
    """One request for each group of this rank, as `encode` reads it; its seed is that of the group."""
    return [
        Request(
            prompts[i].id,
            prompts[i].text,
            prompts[i].images,
            seed=derive_seed(settings.seed, settings.stage, "group", epoch, prompts[i].id, i),
        )
        for i in ranks.shard(len(prompts))
    ]


def common_schedule(model: UnifiedModel, condition: Any, groups: int, steps: int) -> Schedule:
    """The noise levels of all groups.

    Raises:
        UserError: they differ, because pictures of several sizes are asked for.
    """
    schedule = model.schedule(condition, steps=steps)
    for row in range(1, groups):
        if not torch.equal(model.schedule(condition, row=row, steps=steps).levels, schedule.levels):
            raise UserError(
                f"prompt {row + 1} of an epoch asks for a picture of another size than the first, and {model.name} "
                "draws sizes at different noise levels",
                "Give all input images one size.",
            )
    return schedule.to(model.device)


@torch.no_grad()
def collect(
    model: UnifiedModel,
    prompts: Sequence[Prompt],
    rewards: Sequence[Reward],
    settings: FlowGrpoSettings,
    epoch: int,
    ranks: Ranks = ALONE,
) -> tuple[Rollouts, Any, Drawn]:
    """Draw and reward this rank's pictures of an epoch; rewards and advantages are those of all ranks.

    Args:
        prompts: those of all ranks.

    Returns:
        the rollouts, the condition they were drawn under (one row a group), and what is known beside.

    Raises:
        UserError: a prompt that cannot be read, or a reward that fails.
    """
    own = [prompts[i] for i in ranks.shard(len(prompts))]
    requests = requests_of(prompts, settings, epoch, ranks)
    first = ranks.shard(len(prompts)).start * settings.group_size
    mine = ranks.on_all(lambda: _drawn(model, own, requests, rewards, settings, window_of(settings, epoch), first))
    scores, images, k = mine.scores, mine.images, settings.group_size
    everywhere = ranks.gather((scores, _pictures(images, k)))
    columns = ("each", "filled", "total")
    whole = Scores(scores.names, *(np.concatenate([getattr(one, c) for one, _ in everywhere]) for c in columns))
    totals = torch.from_numpy(whole.total)
    groups = torch.arange(len(prompts)).repeat_interleave(k)
    weights = torch.tensor([reward.weight for reward in rewards], dtype=torch.double)
    each = torch.from_numpy(whole.filled)
    if settings.spread == "each":
        advantages = gdpo_advantages(each, weights, groups)
    else:
        advantages = group_advantages(totals, groups, settings.spread)
    rollouts = Rollouts(
        epoch=epoch,
        first=first,
        window=window_of(settings, epoch),
        rewards=each,
        totals=totals,
        advantages=advantages[first : first + len(images)].to(model.device),
        **mine.latents,
    )
    looks = [pictures for _, pictures in everywhere]
    statistics = _rewards(whole, totals, groups, k) | {
        name: float(np.mean([one[name] for one in looks])) for name in looks[0]
    }
    return rollouts, mine.condition, Drawn(own, images, scores, statistics, mine.seconds)


@dataclass(frozen=True, slots=True, eq=False)
class _Own:
    """What one rank has drawn and rewarded by itself. latents: fields of Rollouts by name."""

    condition: Any
    latents: dict[str, Tensor]
    images: list[np.ndarray]
    scores: Scores
    seconds: dict[str, float]


def _drawn(
    model: UnifiedModel,
    prompts: Sequence[Prompt],
    requests: Sequence[Request],
    rewards: Sequence[Reward],
    settings: FlowGrpoSettings,
    window: Window | None,
    first: int,
) -> _Own:
    began = time.perf_counter()
    k = settings.group_size
    condition = model.encode(requests)
    schedule = common_schedule(model, condition, len(requests), settings.steps)
    asked = [replace(r, seed=derive_seed(r.seed, "picture", j)) for r in requests for j in range(k)]
    rule = None if window is None else rule_of(settings)
    parts: list[dict[str, Tensor]] = []
    images: list[np.ndarray] = []
    x_all = model.noise(asked)
    columns = _columns(prompts, k, first)
    with Scoring(rewards, k) as scoring:
        for begin in range(0, len(asked), settings.draw_rows):
            rows = list(range(begin, min(begin + settings.draw_rows, len(asked))))
            under = condition.select([row // k for row in rows])
            part = _draw(model, x_all[rows], under, [asked[row] for row in rows], schedule, rule, window, settings)
            shown = model.decode(part["final"], under)
            told = {name: values[begin : begin + len(rows)] for name, values in columns.items()}
            scoring.add([prompts[row // k].text for row in rows], shown, told)
            images += shown
            parts.append(part)
            note()  # that it goes on, for ranks that wait for this one
        drawn = time.perf_counter()
        scores = scoring.scores()
    seconds = {"rollout": drawn - began, "reward": time.perf_counter() - drawn}
    latents = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return _Own(condition, latents, images, scores, seconds)


def _draw(
    model: UnifiedModel,
    x: Tensor,
    condition: Any,
    requests: Sequence[Request],
    schedule: Schedule,
    rule: StepRule | None,
    window: Window | None,
    settings: FlowGrpoSettings,
) -> dict[str, Tensor]:
    mask = (x != 0).any(-1, keepdim=True)
    blank = x.new_zeros(len(x), 0)
    if rule is None or window is None:
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
        rule,
        window,
        noise,
        mask=mask,
        dtype=getattr(torch, settings.latents),
        keep_means=settings.variant == "guard",
    )
    means = blank if run.means is None else run.means
    return {"latents": run.latents, "log_probs": run.log_probs, "means": means, "final": run.final, "mask": mask}


def _columns(prompts: Sequence[Prompt], k: int, first: int) -> dict[str, list[Any]]:
    """What rewards are told, a value a picture; `place` is its number in the epoch, whatever rank has it."""
    names = dict.fromkeys(name for one in prompts for name in one.columns)
    columns: dict[str, list[Any]] = {"id": [one.id for one in prompts for _ in range(k)]}
    columns["place"] = list(range(first, first + len(prompts) * k))
    columns["images"] = [list(one.images) for one in prompts for _ in range(k)]
    return columns | {name: [one.columns.get(name) for one in prompts for _ in range(k)] for name in names}


def _rewards(scores: Scores, totals: Tensor, groups: Tensor, k: int) -> dict[str, float]:
    """Mean, deviation, quantiles; each by name, and the share of pictures that lack it."""
    low, median, high = np.quantile(scores.total, [0.1, 0.5, 0.9]).tolist()
    found = {
        "reward": float(scores.total.mean()),
        "reward_std": float(scores.total.std()),
        "reward_p10": low,
        "reward_p50": median,
        "reward_p90": high,
        "best_of_group": float(scores.total.reshape(-1, k).max(axis=1).mean()),
        "flat_groups": float(1 - informative(totals, groups).float().mean()),
    }
    for r, name in enumerate(scores.names):
        given = scores.each[~np.isnan(scores.each[:, r]), r]
        if len(given) < len(scores.each):
            found[f"missing/{name}"] = 1 - len(given) / len(scores.each)
        if len(scores.names) > 1 and len(given):
            found[f"reward/{name}"] = float(given.mean())
    return found


def _pictures(images: Sequence[np.ndarray], k: int) -> dict[str, float]:
    """Spread within groups, brightness, contrast, in grey levels."""
    spreads = [
        float(np.stack(images[i : i + k]).astype(np.float32).std(axis=0).mean()) for i in range(0, len(images), k)
    ]
    return {
        "diversity": float(np.mean(spreads)),
        "brightness": float(np.mean([image.mean() for image in images])),
        "contrast": float(np.mean([image.std() for image in images])),
    }
