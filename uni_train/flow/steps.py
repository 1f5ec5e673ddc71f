"""Stochastic steps in place of Euler's: what makes a flow explore, and gives each step a density.

With v the velocity, ``dt = t' - t < 0``, the image and the noise that v implies are ``x0 = x - t v`` and
``e = x + (1 - t) v``; ``-e / t`` is the score. An SDE with any diffusion g(t) keeps the marginals of the ODE:

    mean = x + (v + g^2 / (2 t) e) dt,      std = g sqrt(-dt)

`FlowSDE` and `DanceSDE` choose g. `FlowCPS` is no SDE: it replaces part of the noise, so that none is left over.
At noise level 0 each of them is the Euler step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from uni_train.flow.euler import euler_step, per_row
from uni_train.flow.schedule import Schedule
from uni_train.flow.transition import Density, Transition

ROUNDING = 1e-5
"""Levels this close below 1 are 1."""


@dataclass(frozen=True)
class StepRule(ABC):
    """How a step is taken; the same object samples, and scores what was sampled.

        rule = step_rule("flow_grpo", noise_level=0.7)
        transition = rule.transition(x, velocity, schedule, step)     # [B, ...]; step: an int, or int64 [B]
        x_next = transition.sample(noise)
        old = transition.log_prob(x_next)                             # [B]
        new = rule.transition(x, new_velocity, schedule, step).log_prob(x_next)

    Attributes:
        noise_level: 0 is the Euler step. Published Flow-GRPO runs use 0.7 to 1.3.
        density: how log probabilities count.
    """

    noise_level: float
    density: Density = "gaussian"

    def __post_init__(self) -> None:
        if not self.noise_level >= 0:
            raise ValueError(f"the noise level must be at least 0, got {self.noise_level}")

    def transition(
        self, x: Tensor, velocity: Tensor, schedule: Schedule, step: Tensor | int, mask: Tensor | None = None
    ) -> Transition:
        """From x [B, ...] and its velocity at level `step`, in float32 at least whatever their dtypes.

        Rows may be at different steps. `mask`: see `Transition`.
        """
        x, velocity = _wide(x), _wide(velocity)
        t, t_next = (per_row(level, x) for level in schedule.step(step))
        if self.noise_level == 0:
            still = torch.zeros_like(t)
            return Transition(euler_step(x, velocity, t, t_next), still, still, None, mask)
        mean, std, diffusion = self.moments(x, velocity, t, t_next, per_row(schedule.ceiling, x))
        return Transition(mean, std, diffusion, self.density, mask)

    def trainable_steps(self, schedule: Schedule) -> range:
        """The steps that have noise, so a density."""
        return range(schedule.steps if self.noise_level > 0 else 0)

    @abstractmethod
    def moments(
        self, x: Tensor, velocity: Tensor, t: Tensor, t_next: Tensor, ceiling: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, standard deviation and diffusion; levels broadcast to x, `ceiling` is the schedule's second one."""


class _SDE(StepRule):
    @abstractmethod
    def diffusion(self, t: Tensor, ceiling: Tensor) -> Tensor:
        """g(t)."""

    def moments(
        self, x: Tensor, velocity: Tensor, t: Tensor, t_next: Tensor, ceiling: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        g, dt = self.diffusion(t, ceiling), t_next - t
        noise = x + (1 - t) * velocity
        return x + (velocity + g.square() / (2 * t) * noise) * dt, g * (-dt).sqrt(), g


@dataclass(frozen=True)
class FlowSDE(_SDE):
    """Flow-GRPO (Liu et al. 2025, arXiv 2505.05470): ``g = noise_level sqrt(t / (1 - t))``.

    At t = 1 the denominator takes the schedule's second level instead (Flow-GRPO's and Flow-Factory's code). So it does
    just below 1: a first level that a shift rounded to 1 - 6e-8 would otherwise give a standard deviation of thousands.
    """

    def diffusion(self, t: Tensor, ceiling: Tensor) -> Tensor:
        return self.noise_level * (t / (1 - torch.where(t > 1 - ROUNDING, ceiling, t))).sqrt()


@dataclass(frozen=True)
class DanceSDE(_SDE):
    """DanceGRPO (Xue et al. 2025, arXiv 2505.07818): ``g = noise_level``, the same at every level."""

    def diffusion(self, t: Tensor, ceiling: Tensor) -> Tensor:
        return torch.full_like(t, self.noise_level)


@dataclass(frozen=True)
class FlowCPS(StepRule):
    """Coefficients-preserving sampling (Wang and Yu 2025, arXiv 2509.05952).

        std = t' sin(noise_level pi / 2),   mean = (1 - t') x0 + sqrt(t'^2 - std^2) e

    x' is made of 1 - t' image and t' noise at every step, however few there are. `noise_level` is in [0, 1]; at 1 all
    noise is new. The last step has none, so nothing can be learned there.
    """

    density: Density = "squared_error"

    def __post_init__(self) -> None:
        if not 0 <= self.noise_level <= 1:
            raise ValueError(f"the noise level of CPS is a share in [0, 1], got {self.noise_level}")

    def trainable_steps(self, schedule: Schedule) -> range:
        return super().trainable_steps(schedule)[: schedule.steps - 1]

    def moments(
        self, x: Tensor, velocity: Tensor, t: Tensor, t_next: Tensor, ceiling: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        image, noise = x - t * velocity, x + (1 - t) * velocity
        std = t_next * math.sin(self.noise_level * math.pi / 2)
        return (1 - t_next) * image + (t_next.square() - std.square()).sqrt() * noise, std, std


StepName = Literal["flow_grpo", "bagel", "cps", "dance"]


def step_rule(name: StepName, noise_level: float) -> StepRule:
    """The step of a published variant, by the name that recipes give it.

    `bagel` is Flow-GRPO's own fork for BAGEL: its log probability leaves out what does not depend on the weights.

    Raises:
        ValueError: a noise level that the variant does not have.
    """
    match name:
        case "flow_grpo":
            return FlowSDE(noise_level)
        case "bagel":
            return FlowSDE(noise_level, density="quadratic")
        case "cps":
            return FlowCPS(noise_level)
        case "dance":
            return DanceSDE(noise_level)


def _wide(x: Tensor) -> Tensor:
    """A bfloat16 mean would round away more than the clip range of a ratio allows."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
