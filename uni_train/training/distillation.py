"""Distillation: what the teacher, given prompt and thought (or none), does at a state, the student learns from the
prompt. With several teachers the target is the weighted mean of their velocities.

    loss = mean over states of | v_student(x_t, t, prompt) - v_teacher(x_t, t, prompt, thought) |^2

`Distiller.collate` turns lessons into examples whose `states` carry the teacher's velocities; from there on a lesson is
an example like any other, in one batch with rows that are replayed. What it draws comes from `Lesson.seed`.

Left out on purpose: gradients through the student's rollouts (its states are given, as in DAgger, Ross et al. 2011).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.core.seeds import derive_seed
from uni_train.flow.distillation import (
    as_noised,
    chosen_steps,
    divergence_shares,
    levels_between,
    training_shares,
    trajectory,
    velocities,
)
from uni_train.flow.objective import interpolate
from uni_train.flow.schedule import Schedule
from uni_train.flow.steps import step_rule
from uni_train.models.base import Example, FlowPolicy, Request, States
from uni_train.training.strategies.sharding import unsharded

StateSource = Literal["noised", "teacher", "student"]
Weighting = Literal["shift", "kl"]
NOISE_LEVEL = 0.7
"""Of the step whose divergence weighs: Flow-GRPO's own. It scales all steps alike, but the one from pure noise."""


class Trajectory(NamedTuple):
    """From noise to one image: states [S, G, C] at noise levels [S], float32; or its end alone, S = 1."""

    states: Tensor
    levels: Tensor


@dataclass(frozen=True, slots=True)
class Lesson:
    """One example of distillation: a prompt with one of the teacher's thoughts.

    Attributes:
        request: the teacher's; the student's is the same without the thought.
        trajectory: reads what the teacher has drawn: its whole trajectory, or the clean latents alone; None where
            states are the student's own.
        draws: states to compare velocities at.
        seed: decides which.
        thinks: the student learns the thought, too, and draws behind it, so that it does not forget to think.
    """

    request: Request
    trajectory: Callable[[], Trajectory] | None
    draws: int
    seed: int = 0
    thinks: bool = False

    def example(self, states: States | None = None) -> Example:
        """What the student reads, and the states that it learns from."""
        asked = _student(self)
        return Example(asked.prompt, asked.images, thought=asked.thought, states=states, seed=self.seed)


@dataclass(frozen=True, slots=True)
class DistilSettings:
    """states: where they come from. shift: of their noise levels. reuse: the teacher's stored trajectories are those of
    the velocity that is learned, so that it need not be asked again. weighting: how likely each step of a trajectory
    is: as the shifted levels of training, or by the divergence of Flow-GRPO's random step."""

    states: StateSource
    shift: float
    reuse: bool
    weighting: Weighting = "shift"


class Distiller:
    """The teacher's velocities at states of lessons.

    Args:
        student: the model that is trained.
        teachers: other models of the same latent space, on the same device, with weights above 0; their guidance is
            part of what is learned. The first one makes states of *noised* and *teacher*.
    """

    def __init__(
        self, student: FlowPolicy, teachers: Sequence[tuple[FlowPolicy, float]], settings: DistilSettings
    ) -> None:
        self.student, self.settings = student, settings
        self.teachers = [(teacher.requires_grad_(False).eval(), weight) for teacher, weight in teachers]
        self.teacher = self.teachers[0][0]

    def collate(self, examples: Sequence[Any], seed: int) -> Any:
        """`Trainable.collate` of examples among which are lessons."""
        places = [place for place, example in enumerate(examples) if isinstance(example, Lesson)]
        whole = list(examples)
        for place, states in zip(places, self.states([whole[place] for place in places]), strict=True):
            whole[place] = whole[place].example(states)
        return self.student.collate(whole, seed)

    @torch.no_grad()
    def states(self, lessons: Sequence[Lesson]) -> list[States]:
        """States of each lesson, with the teacher's velocities."""
        if not lessons:
            return []
        x_t, t, known = self._noised(lessons) if self.settings.states == "noised" else self._on_the_way(lessons)
        target = self._target([lesson.request for lesson in lessons], x_t, t) if known is None else known
        clean, noise = as_noised(x_t, target, t[..., None, None])
        sizes = [self.teacher.picture_size(lesson.request) for lesson in lessons]
        arrays = (value.cpu().numpy() for value in (t.double(), clean.float(), noise.float()))
        return [States(*array) for array in zip(*arrays, sizes, strict=True)]

    def _target(self, requests: Sequence[Request], x_t: Tensor, t: Tensor) -> Tensor:
        """The weighted mean of the teachers' velocities [B, D, G, C]: where the sum of weight times squared distance to
        each is smallest."""
        total = sum(weight for _, weight in self.teachers)
        each = (weight / total * velocities_at(teacher, requests, x_t, t) for teacher, weight in self.teachers)
        return functools.reduce(torch.add, each)

    def _noised(self, lessons: Sequence[Lesson]) -> tuple[Tensor, Tensor, None]:
        """The teacher's images, noised afresh: states [B, D, G, C] and levels [B, D]."""
        levels, noise = [], []
        for lesson in lessons:
            generator = np.random.default_rng(derive_seed(lesson.seed, "levels"))
            levels.append(levels_between(self.settings.shift, lesson.draws, generator))
            requests = [replace(lesson.request, seed=derive_seed(lesson.seed, "noise", d)) for d in range(lesson.draws)]
            noise.append(self.teacher.noise(requests))
        clean = _stacked([_drawn(lesson).states[-1] for lesson in lessons]).to(noise[0])
        t = torch.from_numpy(np.stack(levels)).to(clean)
        return interpolate(clean[:, None], _stacked(noise), t[..., None, None]), t, None

    def _on_the_way(self, lessons: Sequence[Lesson]) -> tuple[Tensor, Tensor, Tensor | None]:
        """States on trajectories of the teacher or the student, and the teacher's velocities where those are known."""
        device = self.teacher.device
        if self.settings.states == "student":
            trajectories = self._student_trajectories(lessons)
        else:
            trajectories = [_drawn(lesson) for lesson in lessons]
        x_t, t, known = [], [], []
        for lesson, way in zip(lessons, trajectories, strict=True):
            generator = np.random.default_rng(derive_seed(lesson.seed, "levels"))
            places = torch.from_numpy(chosen_steps(self._shares(way.levels), lesson.draws, generator))
            places = places.to(way.states.device)
            x_t.append(way.states[places])
            t.append(way.levels.to(places.device)[places])
            if self.settings.reuse:
                known.append(velocities(way.states[None], Schedule(way.levels))[0, places])
        given = _stacked(known).to(device) if known else None
        return _stacked(x_t).to(device), torch.stack(t).to(device), given

    def _shares(self, levels: Tensor) -> np.ndarray:
        """How likely each step of a trajectory is, [S]."""
        schedule = Schedule(levels)
        if self.settings.weighting == "kl":
            return divergence_shares(schedule, step_rule("flow_grpo", NOISE_LEVEL))
        return training_shares(schedule, self.settings.shift)

    def _student_trajectories(self, lessons: Sequence[Lesson]) -> list[Trajectory]:
        """Where the student gets by itself; it does not make the last step."""
        was_training = self.student.training
        self.student.eval()
        with unsharded(self.student):
            states, levels = trajectories(self.student, [_student(lesson) for lesson in lessons], last=False)
        self.student.train(was_training)
        return [Trajectory(*state) for state in zip(states, levels, strict=True)]


@torch.no_grad()
def trajectories(model: FlowPolicy, requests: Sequence[Request], last: bool = True) -> tuple[Tensor, Tensor]:
    """How the model draws each request: states [B, S + 1, G, C] and their noise levels [B, S + 1], float32.

    Args:
        last: make the last step; without it states end before, levels do not.
    """
    states: dict[int, Tensor] = {}
    levels: dict[int, Tensor] = {}
    noise = model.noise(requests)
    for rows in _alike(model, requests):
        condition = model.encode([requests[row] for row in rows])
        schedule = model.schedule(condition).to(model.device)
        steps = schedule.steps if last else schedule.steps - 1
        way = trajectory(partial(model.velocity, condition=condition), noise[rows], schedule, steps)
        states.update(zip(rows, way, strict=True))
        levels.update(dict.fromkeys(rows, schedule.levels.cpu()))
    everyone = range(len(requests))
    return torch.stack([states[row] for row in everyone]), torch.stack([levels[row] for row in everyone])


@torch.no_grad()
def velocities_at(model: FlowPolicy, requests: Sequence[Request], x_t: Tensor, t: Tensor) -> Tensor:
    """Velocities [B, D, G, C] at states x_t [B, D, G, C] with levels t [B, D]; a request a row."""
    by_row: dict[int, Tensor] = {}
    for rows in _alike(model, requests):
        condition = model.encode([requests[row] for row in rows])
        own = [model.velocity(x_t[rows, d], t[rows, d], condition) for d in range(t.shape[1])]
        by_row.update(zip(rows, torch.stack(own, 1), strict=True))
    return torch.stack([by_row[row] for row in range(len(requests))])


def _alike(model: FlowPolicy, requests: Sequence[Request]) -> list[list[int]]:
    """Rows of requests that are drawn at the same noise levels and guided alike."""
    rows_of: dict[Any, list[int]] = defaultdict(list)
    for row, request in enumerate(requests):
        rows_of[model.picture_size(request), bool(request.images)].append(row)
    return list(rows_of.values())


def _student(lesson: Lesson) -> Request:
    """What the student is asked, with noise of the lesson's own."""
    thought = lesson.request.thought if lesson.thinks else None
    return replace(lesson.request, thought=thought, seed=derive_seed(lesson.seed, "rollout"))


def _drawn(lesson: Lesson) -> Trajectory:
    assert lesson.trajectory is not None, "states of the teacher need what it has drawn"
    return lesson.trajectory()


def _stacked(latents: Sequence[Tensor]) -> Tensor:
    """With zeros behind the tokens of smaller images."""
    longest = max(latent.shape[-2] for latent in latents)
    return torch.stack([nn.functional.pad(latent, (0, 0, 0, longest - latent.shape[-2])) for latent in latents])
