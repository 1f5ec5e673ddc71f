"""What a student learns when thoughts differ, where it can be worked out: two thoughts, a Gaussian of images each.

The student's best velocity at a state is the mean of the teacher's over the lessons that come there. It should be the
velocity of all images together (`Known.velocity` without a thought), or the student draws blends of what thoughts say.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from uni_train.flow.distillation import (
    as_noised,
    chosen_steps,
    divergence_shares,
    training_shares,
    trajectory,
    velocities,
)
from uni_train.flow.objective import interpolate, velocity_target
from uni_train.flow.schedule import Schedule, bagel_schedule, train_logit, train_timestep
from uni_train.flow.steps import step_rule
from uni_train.models.base import FlowPolicy, Request
from uni_train.training.callbacks import EmaTeacher
from uni_train.training.distillation import Distiller, DistilSettings, Lesson, Trajectory

MEANS, WIDTH, PRIOR = {"left": -2.0, "right": 2.0}, 0.3, {"left": 0.7, "right": 0.3}
STEPS = 100


class Known(FlowPolicy):
    """Images of one number: N(mean of the thought, WIDTH^2); all velocities in closed form."""

    name = "known"
    draw = decode = collate = supervised_loss = prepare_training = example_tokens = None

    def __init__(self, speed: float = 1.0) -> None:
        super().__init__()
        self.weight, self.speed = nn.Parameter(torch.zeros(1)), speed

    def encode(self, requests: Sequence[Request]) -> Tensor:
        """The thoughts, as numbers."""
        return torch.tensor([(*MEANS, None).index(request.thought) for request in requests])

    def noise(self, requests: Sequence[Request]) -> Tensor:
        return torch.stack([torch.randn(1, 1, generator=torch.Generator().manual_seed(r.seed)) for r in requests])

    def schedule(self, condition: Any, row: int = 0, steps: int | None = None) -> Schedule:
        return bagel_schedule((steps or STEPS) + 1, 1.0)

    def picture_size(self, request: Request) -> tuple[int, int]:
        return 1, 1

    def velocity(self, x_t: Tensor, t: Tensor | float, condition: Tensor) -> Tensor:
        t = torch.as_tensor(t).expand(len(x_t))[:, None, None]
        variance = ((1 - t) * WIDTH) ** 2 + t**2
        off = {z: x_t - (1 - t) * mean for z, mean in MEANS.items()}
        each = {z: (t - (1 - t) * WIDTH**2) / variance * off[z] - mean for z, mean in MEANS.items()}
        weight = {z: PRIOR[z] * torch.exp(-0.5 * off[z] ** 2 / variance) for z in MEANS}
        marginal = sum(weight[z] * each[z] for z in MEANS) / sum(weight.values())
        return self.speed * torch.stack([*each.values(), marginal])[condition, torch.arange(len(x_t))]

    def all_images(self, x_t: Tensor, t: Tensor) -> Tensor:
        return self.velocity(x_t, t, torch.full((len(x_t),), 2))

    def blend(self, x_t: Tensor, t: Tensor) -> Tensor:
        """The mean over thoughts where a state says nothing of the thought."""
        each = [p * self.velocity(x_t, t, torch.full((len(x_t),), z)) for z, p in enumerate(PRIOR.values())]
        return sum(each[1:], each[0])


def learned(states: str) -> tuple[Tensor, ...]:
    """Of lessons: their levels, states, the teacher's velocities, the velocity of all images, and the mean of both
    thoughts' velocities as if each state said nothing of the thought."""
    model, n = Known(), 3000
    chance = np.random.default_rng(0).random(n)
    told = [
        Request(str(i), "?", thought="left" if c < PRIOR["left"] else "right", seed=i) for i, c in enumerate(chance)
    ]
    thoughts = model.encode(told)
    way = trajectory(lambda x, t: model.velocity(x, t, thoughts), model.noise(told), model.schedule(None))
    kept = way[:, -1:] if states == "noised" else way
    levels = model.schedule(None).levels[-kept.shape[1] :]
    drawn = (lambda i: None) if states == "student" else (lambda i: lambda: Trajectory(kept[i], levels))
    lessons = [Lesson(one, drawn(i), 6, seed=n + i) for i, one in enumerate(told)]
    settings = DistilSettings(states, 1.0, reuse=False)  # type: ignore[arg-type]
    found = Distiller(model, [(model, 1.0)], settings).states(lessons)
    t = torch.from_numpy(np.concatenate([one.t for one in found])).float()
    clean, noise = (torch.from_numpy(np.concatenate([getattr(one, k) for one in found])) for k in ("clean", "noise"))
    x_t, target = interpolate(clean, noise, t[:, None, None]), velocity_target(clean, noise)
    marginal, prior = model.all_images(x_t, t), model.blend(x_t, t)
    return tuple(one.flatten() for one in (t, x_t, target, marginal, prior))


@pytest.mark.parametrize("states", ["noised", "teacher", "student"])
def test_states_that_follow_the_thought_teach_the_velocity_of_all_images(states: str) -> None:
    every = learned(states)
    for level in (0.35, 0.6):
        x_t, target, marginal, prior = (one[(every[0] - level).abs() < 0.1] for one in every[1:])
        off_marginal, off_prior = [], []
        for low, high in pairwise(torch.quantile(x_t, torch.linspace(0, 1, 9)).tolist()):
            here = (x_t >= low) & (x_t < high)
            spread = float(target[here].std()) / int(here.sum()) ** 0.5 + 0.02  # of the mean; and the schedule's error
            off_marginal.append(float((target - marginal)[here].mean().abs()) / spread)
            off_prior.append(float((target - prior)[here].mean().abs()) / spread)
        expected, other = (off_prior, off_marginal) if states == "student" else (off_marginal, off_prior)
        assert max(expected) < 4.5, (level, off_marginal, off_prior)
        assert max(other) > 20, "the two are told apart"


def test_several_teachers_teach_the_mean_that_minimises_the_weighted_squared_distance() -> None:
    student, teachers = Known(), [(Known(1.0), 1.0), (Known(3.0), 2.0), (Known(-1.0), 0.5)]
    lessons = [Lesson(Request(str(i), "?", seed=i), None, 4, seed=i) for i in range(8)]
    states = Distiller(student, teachers, DistilSettings("student", 1.0, reuse=False)).states(lessons)
    for state in states:
        t, clean, noise = (torch.from_numpy(value).float() for value in (state.t, state.clean, state.noise))
        x_t, learned = interpolate(clean, noise, t[:, None, None]), velocity_target(clean, noise)
        each = [(weight, teacher.velocity(x_t, t, torch.full((len(t),), 2))) for teacher, weight in teachers]
        torch.testing.assert_close(learned, sum(w * v for w, v in each) / 3.5, rtol=1e-4, atol=1e-4)
        below, least, above = (
            float(sum(w * (learned + step - v).square().sum() for w, v in each)) for step in (-0.1, 0.0, 0.1)
        )
        assert least < min(below, above)


def test_a_velocity_at_a_state_is_learned_as_a_noised_image_is() -> None:
    x_t, velocity = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0)).unbind()
    t = torch.tensor([0.001, 0.2, 0.5, 0.9, 0.9999])[:, None]
    clean, noise = as_noised(x_t, velocity, t)
    torch.testing.assert_close(interpolate(clean, noise, t), x_t)
    torch.testing.assert_close(velocity_target(clean, noise), velocity)
    torch.testing.assert_close(train_timestep(train_logit(t, 4.0), 4.0), t)


def test_the_velocities_of_a_trajectory_are_those_that_led_along_it() -> None:
    schedule, seen = bagel_schedule(6, 3.0), []

    def field(x: Tensor, t: Tensor) -> Tensor:
        seen.append(torch.sin(3 * x) + t)
        return seen[-1]

    way = trajectory(field, torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0)), schedule)
    torch.testing.assert_close(velocities(way, schedule), torch.stack(seen, 1), rtol=1e-4, atol=1e-5)


def test_steps_are_chosen_as_often_as_training_levels_land_in_them() -> None:
    schedule = bagel_schedule(11, 1.0)
    shares = training_shares(schedule, 4.0)
    drawn = [int(chosen_steps(shares, 1, np.random.default_rng(i))[0]) for i in range(4000)]
    ends = schedule.levels.double().numpy()
    share = -np.diff(ends / (4 - 3 * ends))
    assert np.bincount(drawn, minlength=10) / 4000 == pytest.approx(share, abs=0.03)
    several = chosen_steps(shares, 4, np.random.default_rng(0))
    assert len(set(several.tolist())) == 4
    assert chosen_steps(shares, 99, np.random.default_rng(0)).tolist() == list(range(10))


def test_steps_by_divergence_are_those_of_flow_grpo() -> None:
    """KL = (1 + a^2/2)^2 / (2 a^2) * (1 - t) / t * dt * |difference of velocities|^2 below t = 1, whatever a is."""
    schedule = bagel_schedule(11, 2.0)
    t, dt = schedule.levels.double().numpy()[:-1], -np.diff(schedule.levels.double().numpy())
    expected = ((1 - t) / t * dt)[1:]
    for level in (0.3, 1.0):
        shares = divergence_shares(schedule, step_rule("flow_grpo", level))
        assert shares.sum() == pytest.approx(1)
        assert shares[1:] / shares[1:].sum() == pytest.approx(expected / expected.sum(), rel=1e-4)
        assert shares[0] < shares[1]


def test_a_teacher_that_follows_is_an_average_of_its_student() -> None:
    teacher, student = nn.Linear(2, 1), nn.Linear(2, 1)
    student.bias.requires_grad_(False)
    before, bias = teacher.weight.detach().clone(), teacher.bias.detach().clone()
    following = EmaTeacher(teacher, student, 0.9)

    class Last:
        last, step = True, 0

    following.on_train_batch_end(None, None, None, Last(), 0)  # type: ignore[arg-type]
    torch.testing.assert_close(teacher.weight.detach(), 0.9 * before + 0.1 * student.weight.detach())
    assert torch.equal(teacher.bias, bias), "what is not trained stays"
    half = nn.Linear(2, 1).bfloat16()
    follows, start = EmaTeacher(half, student, 0.999), half.weight.detach().float().clone()
    for _ in range(500):
        follows.on_train_batch_end(None, None, None, Last(), 0)  # type: ignore[arg-type]
    expected = student.weight.detach() + 0.999**500 * (start - student.weight.detach())
    torch.testing.assert_close(half.weight.detach().float(), expected, rtol=0.01, atol=0.01)
    other = nn.Linear(2, 1)
    EmaTeacher(other, student, 0.9).load_state_dict(following.state_dict())
    assert torch.equal(other.weight, teacher.weight) and list(following.state_dict()["averages"]) == ["weight"]
