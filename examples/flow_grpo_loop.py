"""Flow-GRPO (Liu et al. 2025, arXiv 2505.05470) as a plain PyTorch loop on nano, to read and to change.

    python examples/flow_grpo_loop.py --reward ink --epochs 10
    python examples/flow_grpo_loop.py --reward verifier --kl 0.01

Read it from top to bottom. `train` is the loop; the functions above it are its formulas, in the loop's order:

    1. rollout       images of each prompt, in steps with noise: an SDE in place of the ODE     rollout
    2. reward        one number an image                                                         ink, verifier
    3. advantage     the reward compared with the other images of the same prompt               advantages
    4. loss          each noisy step is an action: PPO's clipped ratio of its density            policy_loss
    5. KL            distance to the starting weights                                            policy_loss

Time runs from t = 1 (noise) to t = 0 (image). The model predicts the velocity v = noise - image.
Shapes: B images (prompts x group), K noisy steps, latents [G tokens, C numbers].

`uni_train fit flow_grpo_math` runs the same algorithm with more: LoRA, several GPUs, resuming, other variants,
judges as rewards, checks and alarms (docs/flow_grpo.md). tests/test_flow_grpo_loop.py compares the losses of both.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uni_train.data_gen.registry import get_task, task_of
from uni_train.data_gen.task import Item
from uni_train.models.base import FlowPolicy, Request
from uni_train.models.load import build_model, model_config
from uni_train.training.trained import train_only

Reward = Callable[[Item, np.ndarray], float]
Moments = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Settings:
    """The algorithm's numbers; `uni_train fit` has the same ones under the names in brackets."""

    epochs: int = 10
    prompts: int = 6  # the same in every epoch (prompts.n)
    group: int = 6  # images a prompt (rollout.group_size)
    updates: int = 2  # an epoch; the first is exactly on-policy (updates_per_epoch)
    steps: int = 6  # sampling steps (rollout.steps)
    noisy: int = 3  # the first ones, which are trained (rollout.last_step)
    noise_level: float = 0.7  # of the SDE (rollout.noise_level)
    clip: float = 0.1  # of the ratio (objective.clip_low, clip_high)
    advantage_clip: float = 5.0  # (objective.advantage_clip)
    kl: float = 0.0  # weight of the penalty (objective.kl)
    lr: float = 1e-3  # (optimizer.lr)
    max_norm: float = 1.0  # of the gradient (optimizer.clip)
    seed: int = 0


# --- 1. rollout -------------------------------------------------------------------------------------------------------


def sde_step(x: Tensor, v: Tensor, t: Tensor, t_next: Tensor, ceiling: Tensor, noise_level: float) -> Moments:
    """Mean [B, G, C], standard deviation and diffusion [B, 1, 1] of the next latents (Flow-GRPO, eq. 9).

    The ODE's step is ``x + v dt``. An SDE with diffusion g has the same marginals if the drift also follows the score
    ``-noise / t``; g = noise_level sqrt(t / (1 - t)), with the second level in place of t = 1.
    """
    t, t_next = t.reshape(-1, 1, 1), t_next.reshape(-1, 1, 1)
    g = noise_level * (t / (1 - torch.where(t > 1 - 1e-5, ceiling, t))).sqrt()
    dt = t_next - t  # negative
    noise = x + (1 - t) * v  # as the velocity implies it
    return x + (v + g**2 / (2 * t) * noise) * dt, g * (-dt).sqrt(), g


def log_density(x_next: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """[B]: log N(x_next; mean, std^2), a mean over the numbers of an image, so that it does not grow with the image."""
    squared = ((x_next - mean) ** 2 / (2 * std**2)).mean((1, 2))
    return -squared - std.flatten().log() - math.log(2 * math.pi) / 2


@dataclass
class Rollout:
    """What sampling leaves for training: latents [B, K + 1, G, C] around the noisy steps, log densities [B, K]."""

    condition: Any
    levels: Tensor
    latents: Tensor
    log_probs: Tensor
    images: list[np.ndarray]


@torch.no_grad()
def rollout(model: FlowPolicy, items: Sequence[Item], settings: Settings, epoch: int) -> Rollout:
    """Sample `group` images of each item; those of a group are adjacent."""
    seeds = [(item, epoch * 1_000_003 + i) for i, item in enumerate(x for x in items for _ in range(settings.group))]
    requests = [Request(item.id, item.prompt, seed=seed) for item, seed in seeds]
    condition = model.encode(requests)  # prompts are read once: the weights that read are not trained here
    levels = model.schedule(condition, steps=settings.steps).levels
    x = model.noise(requests)
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + epoch)
    latents, log_probs = [x], []
    for step in range(settings.steps):
        t, t_next = levels[step], levels[step + 1]
        v = model.velocity(x, t, condition)
        if step < settings.noisy:
            mean, std, _ = sde_step(x, v, t, t_next, levels[1], settings.noise_level)
            x = mean + std * torch.randn(x.shape, generator=generator)
            log_probs.append(log_density(x, mean, std).expand(len(x)))
            latents.append(x)
        else:
            x = x + v * (t_next - t)
    images = model.decode(x, condition)
    return Rollout(condition, levels, torch.stack(latents, 1), torch.stack(log_probs, 1), images)


# --- 2. reward --------------------------------------------------------------------------------------------------------


def ink(item: Item, image: np.ndarray) -> float:
    """How dark an image [H, W, 3] is, in [0, 1]: a reward that rises within a few epochs."""
    return 1 - float(image.mean()) / 255


def verifier(item: Item, image: np.ndarray) -> float:
    """The share of the exact verifier's checks that pass, in [0, 1]: object and count."""
    checks = task_of(item).verify(item, image).checks
    return sum(check.status == "pass" for check in checks) / max(len(checks), 1)


REWARDS: dict[str, Reward] = {"ink": ink, "verifier": verifier}


# --- 3. advantage -----------------------------------------------------------------------------------------------------


def advantages(rewards: Tensor, group: int) -> Tensor:
    """[B]: (reward - mean of its group) / standard deviation of its group; 0 where the group's rewards are equal."""
    grouped = rewards.double().reshape(-1, group)
    centred = grouped - grouped.mean(1, keepdim=True)
    return (centred / (grouped.std(1, correction=0, keepdim=True) + 1e-4)).flatten().float()


# --- 4., 5. loss ------------------------------------------------------------------------------------------------------


def policy_loss(
    model: FlowPolicy, reference: FlowPolicy | None, sampled: Rollout, advantage: Tensor, step: int,
    rows: Tensor, settings: Settings,
) -> tuple[Tensor, dict[str, float]]:  # fmt: skip
    """The loss of noisy step `step` of some images, and metrics.

        mean over images of  max(-A r, -A clip(r, 1 - clip, 1 + clip)) + kl * mean (mean - reference mean)^2 / (2 g^2)

    with r = p(x_next | x) under the current weights / under those that sampled.

    Args:
        rows: int64 [R], which images.
    """
    x, x_next = sampled.latents[rows, step], sampled.latents[rows, step + 1]
    condition = sampled.condition.select(rows.tolist())
    t, t_next = sampled.levels[step].expand(len(rows)), sampled.levels[step + 1].expand(len(rows))

    def moments(of: FlowPolicy) -> Moments:
        return sde_step(x, of.velocity(x, t, condition), t, t_next, sampled.levels[1], settings.noise_level)

    mean, std, diffusion = moments(model)
    ratio = (log_density(x_next, mean, std) - sampled.log_probs[rows, step]).exp()
    a = advantage[rows].clamp(-settings.advantage_clip, settings.advantage_clip)
    loss = torch.maximum(-a * ratio, -a * ratio.clamp(1 - settings.clip, 1 + settings.clip)).mean()
    off = ratio.detach() - 1
    metrics = {"ratio": 1 + float(off.mean()), "clipped": float((off.abs() > settings.clip).float().mean())}
    if reference is not None:
        with torch.no_grad():
            towards = moments(reference)[0]
        kl = ((mean - towards) ** 2 / (2 * diffusion**2)).mean((1, 2)).mean()
        metrics["kl"] = float(kl.detach())
        loss = loss + settings.kl * kl
    return loss, metrics


# --- the loop ---------------------------------------------------------------------------------------------------------


def train(model: FlowPolicy, reward: Reward, settings: Settings) -> Iterator[dict[str, float]]:
    """Train the generation weights of `model` in place; yields the metrics of each epoch."""
    task = get_task("maths", "nano")
    names = train_only(model, "moe_gen")
    parameters = [p for name, p in model.named_parameters() if name in names]
    optimizer = torch.optim.AdamW(parameters, lr=settings.lr, weight_decay=0.0)
    reference = copy.deepcopy(model) if settings.kl else None
    model.eval()  # sampling and training must compute the same velocities: no dropout
    items = task.generate(settings.prompts, 1, "train", settings.seed)
    for epoch in range(settings.epochs):
        sampled = rollout(model, items, settings, epoch)
        each = [item for item in items for _ in range(settings.group)]
        rewards = torch.tensor([reward(*pair) for pair in zip(each, sampled.images, strict=True)])
        advantage = advantages(rewards, settings.group)
        order = torch.randperm(len(each), generator=torch.Generator().manual_seed(epoch))
        losses, metrics = [], {}
        for rows in order.chunk(settings.updates):
            optimizer.zero_grad()
            for step in range(settings.noisy):  # a micro-batch each; gradients add up
                loss, metrics = policy_loss(model, reference, sampled, advantage, step, rows, settings)
                (loss / settings.noisy).backward()
                losses.append(float(loss.detach()))
            torch.nn.utils.clip_grad_norm_(parameters, settings.max_norm)
            optimizer.step()
        yield {"epoch": epoch, "reward": float(rewards.mean()), "loss": float(np.mean(losses)), **metrics}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reward", choices=sorted(REWARDS), default="ink")
    for name in ("epochs", "prompts", "group", "updates", "steps", "noisy", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Settings, name))
    for name in ("noise_level", "clip", "kl", "lr"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(Settings, name))
    given = vars(parser.parse_args())
    reward = REWARDS[given.pop("reward")]
    for line in train(build_model(model_config("nano")), reward, Settings(**given)):
        print("  ".join(f"{name} {value:.4g}" for name, value in line.items()), flush=True)


if __name__ == "__main__":
    main()
