"""Sampling with memory: what reinforcement needs to score the random steps again with other weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from uni_train.flow.euler import euler_step
from uni_train.flow.schedule import Schedule
from uni_train.flow.steps import StepRule
from uni_train.flow.window import Window


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """B samples and the W random steps that led to them.

    Attributes:
        window: which steps of the schedule those were.
        latents: [B, W + 1, ...] in the dtype they were scored in: before, between and after the random steps.
        log_probs: float32 [B, W].
        means: [B, W, ...], if they were asked for (GRPO-Guard needs them).
        final: [B, ...], at t = 0.
    """

    window: Window
    latents: Tensor
    log_probs: Tensor
    means: Tensor | None
    final: Tensor


@torch.no_grad()
def roll_out(
    velocity: Callable[[Tensor, Tensor | float], Tensor],
    x: Tensor,
    schedule: Schedule,
    rule: StepRule,
    window: Window,
    noise: Callable[[int], Tensor],
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    keep_means: bool = False,
) -> Trajectory:
    """From noise x [B, ...] to t = 0: random steps by `rule` inside the window, Euler steps outside.

    Args:
        velocity: of x and a level of `Schedule.before`.
        noise: the Gaussian draw [B, ...] of a step; asked for inside the window only.
        mask: bool, broadcasts to x: which elements belong to an image.
        dtype: latents in the window are rounded to it *before* they are scored. Scored unrounded and stored rounded,
            a bfloat16 latent moves the ratio by as much as the clip range.
        keep_means: store the means as well.

    Raises:
        ValueError: the window is empty, or reaches steps that have no noise.
    """
    allowed = rule.trainable_steps(schedule)
    if window.size < 1 or not all(step in allowed for step in window.steps):
        raise ValueError(
            f"random steps {window.start} to {window.start + window.size - 1} are asked for, "
            f"but only those from {allowed.start} to {allowed.stop - 1} of {schedule.steps} can be"
            if allowed
            else "no step of this rule is random: its noise level is 0"
        )
    latents, log_probs, means = [], [], []
    for step, level in enumerate(schedule.before()):
        t, t_next = schedule.step(step)
        if step == window.start:
            latents.append(x.to(dtype))
            x = latents[-1].float()
        v = velocity(x, level)
        if step in window:
            transition = rule.transition(x, v, schedule, step, mask)
            latents.append(transition.sample(noise(step)).to(dtype))
            x = latents[-1].float()
            log_probs.append(transition.log_prob(x))
            if keep_means:
                means.append(transition.mean)
        else:
            x = euler_step(x, v.float(), t, t_next)
    return Trajectory(
        window,
        torch.stack(latents, 1),
        torch.stack(log_probs, 1),
        torch.stack(means, 1) if keep_means else None,
        x,
    )
