"""Think-distillation: what the teacher, given prompt and thought, does at a state, the student learns from the prompt.

    loss = mean over states of | v_student(x_t, t, prompt) - v_teacher(x_t, t, prompt, thought) |^2

`Distiller.collate` turns lessons into examples whose `states` carry the teacher's velocities; from there on a lesson is
an example like any other, in one batch with rows that are replayed. What it draws comes from `Lesson.seed`.

Left out on purpose: gradients through the student's rollouts (its states are given, as in DAgger, Ross et al. 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from data_gen.seeds import derive_seed
from uni_train.flow.distillation import as_noised, chosen_steps, levels_between, trajectory, velocities
from uni_train.flow.objective import interpolate
from uni_train.flow.schedule import Schedule
from uni_train.models.base import Example, Request, States, UnifiedModel
from uni_train.training.strategies.sharding import unsharded

StateSource = Literal["noised", "teacher", "student"]


@dataclass(frozen=True, slots=True)
class Lesson:
    """A prompt with one of the teacher's thoughts.

    Attributes:
        told: what the teacher is told; the student is told the same but for the thought.
        drawn: reads what the teacher has drawn of it, [S, G, C]: its whole trajectory, or the clean latents alone;
            None where states are the student's own.
        draws: states to compare velocities at.
        seed: decides which.
    """

    told: Request
    drawn: Callable[[], Tensor] | None
    draws: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class DistilSettings:
    """states: where they come from. shift: of their noise levels. reuse: the teacher's stored trajectories are those of
    the velocity that is learned, so that it need not be asked again."""

    states: StateSource
    shift: float
    reuse: bool


class Distiller:
    """The teacher's velocities at states of lessons.

    Args:
        student: the model that is trained.
        teacher: another model of its kind, on the same device; its guidance is part of what is learned.
    """

    def __init__(self, student: UnifiedModel, teacher: UnifiedModel, settings: DistilSettings) -> None:
        self.student, self.settings = student, settings
        self.teacher = teacher.requires_grad_(False).eval()

    def collate(self, examples: Sequence[Any], seed: int) -> Any:
        """`UnifiedModel.collate` of examples among which are lessons."""
        places = [place for place, one in enumerate(examples) if isinstance(one, Lesson)]
        whole = list(examples)
        for place, states in zip(places, self.states([whole[place] for place in places]), strict=True):
            told = whole[place].told
            whole[place] = Example(told.prompt, told.images, states=states, seed=whole[place].seed)
        return self.student.collate(whole, seed)

    @torch.no_grad()
    def states(self, lessons: Sequence[Lesson]) -> list[States]:
        """States of each lesson, with the teacher's velocities."""
        if not lessons:
            return []
        x_t, t, known = self._noised(lessons) if self.settings.states == "noised" else self._on_the_way(lessons)
        target = self._velocities(x_t, t, lessons) if known is None else known
        clean, noise = as_noised(x_t, target, t[..., None, None])
        sizes = [self.teacher.picture_size(lesson.told) for lesson in lessons]
        arrays = (value.cpu().numpy() for value in (t.double(), clean.float(), noise.float()))
        return [States(*one) for one in zip(*arrays, sizes, strict=True)]

    @torch.no_grad()
    def gaps(self, lessons: Sequence[Lesson]) -> list[float]:
        """How far the student is from the teacher: the mean squared difference of their velocities at each lesson's
        states."""
        found = self.states(lessons)
        t, clean, noise = (
            torch.from_numpy(np.stack([getattr(one, name) for one in found])).float().to(self.student.device)
            for name in ("t", "clean", "noise")
        )
        x_t, target = interpolate(clean, noise, t[..., None, None]), noise - clean
        with unsharded(self.student), self.student.guided_at(1.0):
            condition = self.student.encode([_student(lesson) for lesson in lessons])
            own = [self.student.velocity(x_t[:, d], t[:, d], condition) for d in range(t.shape[1])]
        return (torch.stack(own, 1) - target).square().flatten(1).mean(1).tolist()

    def _noised(self, lessons: Sequence[Lesson]) -> tuple[Tensor, Tensor, None]:
        """The teacher's images, noised afresh: states [B, D, G, C] and levels [B, D]."""
        levels, noise = [], []
        for lesson in lessons:
            generator = np.random.default_rng(derive_seed(lesson.seed, "levels"))
            levels.append(levels_between(self.settings.shift, lesson.draws, generator))
            requests = [replace(lesson.told, seed=derive_seed(lesson.seed, "noise", d)) for d in range(lesson.draws)]
            noise.append(self.teacher.noise(requests))
        clean = _stacked([_drawn(lesson)[-1] for lesson in lessons]).to(noise[0])
        t = torch.from_numpy(np.stack(levels)).to(clean)
        return interpolate(clean[:, None], _stacked(noise), t[..., None, None]), t, None

    def _on_the_way(self, lessons: Sequence[Lesson]) -> tuple[Tensor, Tensor, Tensor | None]:
        """States on trajectories of the teacher or the student, and the teacher's velocities where those are known."""
        if self.settings.states == "student":
            schedule, way = self._student_ways(lessons)
        else:
            way = _stacked([_drawn(lesson) for lesson in lessons]).to(self.teacher.device)
            schedule = self.teacher.schedule(None, steps=way.shape[1] - 1).to(way.device)
        places = torch.from_numpy(
            np.stack(
                [
                    chosen_steps(
                        schedule,
                        self.settings.shift,
                        lesson.draws,
                        np.random.default_rng(derive_seed(lesson.seed, "levels")),
                    )
                    for lesson in lessons
                ]
            )
        ).to(way.device)
        rows = torch.arange(len(lessons), device=way.device)[:, None]
        known = velocities(way, schedule)[rows, places] if self.settings.reuse else None
        return way[rows, places], schedule.levels[places], known

    def _student_ways(self, lessons: Sequence[Lesson]) -> tuple[Schedule, Tensor]:
        """Where the student gets by itself [B, S, G, C]; it does not make the last step."""
        requests = [_student(lesson) for lesson in lessons]
        was_training = self.student.training
        self.student.eval()
        with unsharded(self.student):
            condition = self.student.encode(requests)
            schedule = self.student.schedule(condition).to(self.student.device)
            way = trajectory(
                lambda x, t: self.student.velocity(x, t, condition),
                self.student.noise(requests),
                schedule,
                schedule.steps - 1,
            )
        self.student.train(was_training)
        return schedule, way

    def _velocities(self, x_t: Tensor, t: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        condition = self.teacher.encode([lesson.told for lesson in lessons])
        return torch.stack([self.teacher.velocity(x_t[:, d], t[:, d], condition) for d in range(t.shape[1])], 1)


def _student(lesson: Lesson) -> Request:
    """What the student is asked, with noise of the lesson's own."""
    return replace(lesson.told, thought=None, seed=derive_seed(lesson.seed, "rollout"))


def _drawn(lesson: Lesson) -> Tensor:
    assert lesson.drawn is not None, "states of the teacher need what it has drawn"
    return lesson.drawn()


def _stacked(latents: Sequence[Tensor]) -> Tensor:
    """With zeros behind the tokens of smaller images."""
    longest = max(one.shape[-2] for one in latents)
    return torch.stack([nn.functional.pad(one, (0, 0, 0, longest - one.shape[-2])) for one in latents])
