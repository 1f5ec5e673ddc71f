"""The pictures of an epoch: drawn by today's weights, rewarded, and kept until the updates on them are done.

N = groups x group_size pictures, W random steps each, latents [G, C]. The pictures of a group stand in a row. What is
drawn depends on the weights, the run's seed, the epoch and the prompt, not on how many pictures are drawn together.
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
from uni_train.errors import UserError
from uni_train.flow.advantages import gdpo_advantages, group_advantages, informative
from uni_train.flow.euler import euler_step
from uni_train.flow.rollout import roll_out
from uni_train.flow.schedule import Schedule
from uni_train.flow.steps import StepRule, step_rule
from uni_train.flow.window import SlidingWindow, Window, epoch_window
from uni_train.models.base import Request, UnifiedModel
from uni_train.rewards.contract import Reward, Scores, score
from uni_train.training.flow_grpo.prompts import Prompt
from uni_train.training.flow_grpo.settings import NOISE_LEVELS, FlowGrpoSettings


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """Tensors on the model's device.

    Attributes:
        window: the random steps (None: diffusion_nft has none).
        latents: [N, W + 1, G, C] before, between and after them. log_probs: float32 [N, W]. means: [N, W, G, C], if the
            objective needs them.
        final: float32 [N, G, C], clean. mask: bool [N, G, 1], which tokens belong to a picture.
        rewards: float64 [N, R]. totals, advantages: [N].
    """

    epoch: int
    window: Window | None
    latents: Tensor
    log_probs: Tensor
    means: Tensor
    final: Tensor
    mask: Tensor
    rewards: Tensor
    totals: Tensor
    advantages: Tensor

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
        prompts: one a group. images: one a picture. statistics: numbers for the log. seconds: rollout and reward.
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


def requests_of(prompts: Sequence[Prompt], settings: FlowGrpoSettings, epoch: int) -> list[Request]:
    """One request a group, as `encode` reads it; its seed is that of the group."""
    return [
        Request(
            one.id, one.text, one.images, seed=derive_seed(settings.seed, settings.stage, "group", epoch, one.id, i)
        )
        for i, one in enumerate(prompts)
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
) -> tuple[Rollouts, Any, Drawn]:
    """Draw and reward the pictures of an epoch.

    Returns:
        the rollouts, the condition they were drawn under (one row a group), and what is known beside.

    Raises:
        UserError: a prompt that cannot be read, or a reward that fails.
    """
    began = time.perf_counter()
    k = settings.group_size
    requests = requests_of(prompts, settings, epoch)
    condition = model.encode(requests)
    schedule = common_schedule(model, condition, len(requests), settings.steps)
    asked = [replace(r, seed=derive_seed(r.seed, "picture", j)) for r in requests for j in range(k)]
    window = window_of(settings, epoch)
    rule = None if window is None else rule_of(settings)
    parts: list[dict[str, Tensor]] = []
    images: list[np.ndarray] = []
    x_all = model.noise(asked)
    for begin in range(0, len(asked), settings.draw_rows):
        rows = list(range(begin, min(begin + settings.draw_rows, len(asked))))
        under = condition.select([row // k for row in rows])
        part = _draw(model, x_all[rows], under, [asked[row] for row in rows], schedule, rule, window, settings)
        images += model.decode(part["final"], under)
        parts.append(part)
    drawn = time.perf_counter()
    columns = _columns(prompts, k)
    texts = [one.text for one in prompts for _ in range(k)]
    scores = score(rewards, texts, images, columns, k)
    rewarded = time.perf_counter()
    totals = torch.from_numpy(scores.total)
    groups = torch.arange(len(prompts)).repeat_interleave(k)
    weights = torch.tensor([reward.weight for reward in rewards], dtype=torch.double)
    each = torch.from_numpy(scores.filled)
    if settings.spread == "each":
        advantages = gdpo_advantages(each, weights, groups)
    else:
        advantages = group_advantages(totals, groups, settings.spread)
    device = x_all.device
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    rollouts = Rollouts(
        epoch=epoch, window=window, rewards=each, totals=totals, advantages=advantages.to(device), **joined
    )
    return (
        rollouts,
        condition,
        Drawn(
            prompts,
            images,
            scores,
            _statistics(scores, totals, groups, images, k),
            {"rollout": drawn - began, "reward": rewarded - drawn},
        ),
    )


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


def _columns(prompts: Sequence[Prompt], k: int) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for one in prompts for name in one.columns)
    columns: dict[str, list[Any]] = {"id": [one.id for one in prompts for _ in range(k)]}
    columns["images"] = [list(one.images) for one in prompts for _ in range(k)]
    return columns | {name: [one.columns.get(name) for one in prompts for _ in range(k)] for name in names}


def _statistics(
    scores: Scores, totals: Tensor, groups: Tensor, images: Sequence[np.ndarray], k: int
) -> dict[str, float]:
    """Rewards: mean, deviation, quantiles; each by name, and the share of pictures that lack it. Pictures: brightness,
    contrast, spread within groups (grey levels)."""
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
    spreads = [
        float(np.stack(images[i : i + k]).astype(np.float32).std(axis=0).mean()) for i in range(0, len(images), k)
    ]
    found["diversity"] = float(np.mean(spreads))
    found["brightness"] = float(np.mean([image.mean() for image in images]))
    found["contrast"] = float(np.mean([image.std() for image in images]))
    return found
