"""One velocity learned from another (docs/distillation.md): states to compare them at, and what is learned there.

A student that does not see the thought learns a mean of the teacher's velocities. At a state x_t it is the mean over
the thoughts that lead to x_t. Where states come from decides that mean: with thoughts z,

    E[v | x_t] = sum_z q(z | x_t) v(x_t | z),    q(z | x_t) ~ p(z) q_t(x_t | z)

States that depend on z as the teacher's images do (their noised images, its own trajectories: q_t = p_t) give the
velocity of the marginal p(x_0). The student's own states do not depend on z: q(z | x_t) is then the prior p(z).

Shapes: B rows, S steps, G latent tokens, C numbers a token.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from uni_train.flow.euler import euler_step
from uni_train.flow.objective import clean_from_velocity
from uni_train.flow.schedule import Schedule, shift_timestep
from uni_train.flow.steps import StepRule

Velocity = Callable[[Tensor, Tensor], Tensor]
"""x_t [B, ...] and a noise level (a scalar) -> noise - clean, [B, ...]."""

LEAST = 1e-4  # noise levels are kept so far from 0 and 1, where logits end


@torch.no_grad()
def trajectory(velocity: Velocity, noise: Tensor, schedule: Schedule, steps: int | None = None) -> Tensor:
    """Euler's way from `noise` [B, ...] at t = 1: float32 [B, S + 1, ...], at each level of the schedule.

    Args:
        steps: stop after so many; None: go to the clean image.
    """
    states = [noise.float()]
    for step in range(schedule.steps if steps is None else steps):
        t, t_next = schedule.step(step)
        states.append(euler_step(states[-1], velocity(states[-1], t), t, t_next))
    return torch.stack(states, 1)


def velocities(states: Tensor, schedule: Schedule) -> Tensor:
    """The velocities [B, S, ...] that led along a whole `trajectory` [B, S + 1, ...]."""
    lengths = -schedule.levels.diff().to(states)
    return -states.diff(dim=1) / lengths.reshape(1, -1, *(1,) * (states.ndim - 2))


def as_noised(x_t: Tensor, velocity: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """(clean, noise) whose `interpolate` at t is x_t and whose `velocity_target` is `velocity`; `t` broadcasts.

    So a velocity at a state is learned by the objective that learns a noised image.
    """
    return clean_from_velocity(x_t, velocity, t), x_t + (1 - t) * velocity


def levels_between(shift: float, draws: int, generator: np.random.Generator) -> np.ndarray:
    """`draws` noise levels, float64, one from each of as many equal parts of (0, 1), then shifted."""
    even = torch.from_numpy((np.arange(draws) + generator.random(draws)) / draws)
    return shift_timestep(even, shift).clamp(LEAST, 1 - LEAST).numpy()


def training_shares(schedule: Schedule, shift: float) -> np.ndarray:
    """[S]: how likely a level of `levels_between` lands in each step of a schedule."""
    ends = schedule.levels.double().cpu()
    even = ends / (shift - (shift - 1) * ends)  # the inverse of the shift
    return -even.diff().numpy()


def divergence_shares(schedule: Schedule, rule: StepRule) -> np.ndarray:
    """[S], sum 1: the Kullback-Leibler divergence of each random step, for velocities that are equally far apart.

    A step that is drawn so has the gradient of that divergence, summed over a trajectory (DiffusionOPD, arXiv
    2605.15055), without a weight in the loss. Several different steps come near it; all steps weigh the same.
    """
    steps, zeros = torch.arange(schedule.steps), torch.zeros(schedule.steps, 1, dtype=torch.float64)
    first, second = (rule.transition(zeros, zeros + velocity, schedule, steps) for velocity in (0.0, 1.0))
    divergence = ((second.mean - first.mean) / first.std).square().flatten() / 2
    return (divergence / divergence.sum()).cpu().numpy()


def chosen_steps(shares: np.ndarray, draws: int, generator: np.random.Generator) -> np.ndarray:
    """`draws` different steps, rising, by how likely each is [S].

    All of them, where there are no more. Drawn one after the other without putting back (Efraimidis & Spirakis 2006).
    """
    keys = np.log(generator.random(len(shares))) / shares
    return np.sort(np.argsort(-keys)[:draws])
