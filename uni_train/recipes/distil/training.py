"""The student learns the teacher's velocities, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import ConcatDataset

from uni_train.config.kinds import Updates
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.task import Item
from uni_train.eval.scored import read_folder
from uni_train.models.base import Example, FlowPolicy, Request, States, UnifiedModel, expect_skill
from uni_train.models.checkpoint import on_disk
from uni_train.models.family import Family, family_of
from uni_train.models.load import load_weights
from uni_train.recipes.distil.config import DistilConfig
from uni_train.recipes.distil.drawing import StoredTrajectories
from uni_train.recipes.distil.thinking import request
from uni_train.recipes.stars import teachers
from uni_train.recipes.stars.config import PRETRAIN, THOUGHTS, RoundConfig
from uni_train.recipes.stars.filtering import kept_rows
from uni_train.recipes.stars.finetune import curriculum, replayed, watching
from uni_train.recipes.stars.rounds import updates
from uni_train.stages.train_stage import train_stage
from uni_train.stages.work import StageRun, Work
from uni_train.training.curriculum import Curriculum
from uni_train.training.distillation import Distiller, DistilSettings, Lesson
from uni_train.training.steps import Source, row_counts

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback


@dataclass(frozen=True, slots=True)
class RoundStages:
    """A round's finished stages. drawing: None where states are the student's own."""

    round: RoundConfig
    thinking: StageRun
    drawing: StageRun | None


class TeacherRequests(Sequence[Request]):
    """The teacher's requests: prompts with the thoughts that the filter keeps. Input images are rendered on access."""

    def __init__(self, work: Work[DistilConfig], thinking: StageRun, round_: RoundConfig) -> None:
        rows = set(work.ranks.from_main(partial(kept_rows, thinking.shards, work.config, round_)))
        self.kept = [s.sample for row, s in enumerate(read_folder(thinking.shards, images=False)) if row in rows]

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> Request:  # type: ignore[override]
        answer = self.kept[index]
        return request(answer.ask.case, answer.ask.seed, answer.thought)


class RoundLessons(Sequence[Lesson]):
    """The examples of a round, made on access."""

    def __init__(self, work: Work[DistilConfig], of: RoundStages, thinks: bool = False) -> None:
        self.thinks = thinks
        self.requests, self.draws = TeacherRequests(work, of.thinking, of.round), work.config.batch.noise_draws
        self.trajectories = (
            None if of.drawing is None else StoredTrajectories(of.drawing.shards, work.config.model.draw_batch)
        )

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, index: int) -> Lesson:  # type: ignore[override]
        trajectory = None if self.trajectories is None else partial(self.trajectories.__getitem__, index)
        return Lesson(self.requests[index], trajectory, self.draws, thinks=self.thinks)


def run(work: Work[DistilConfig], stage: StageRun, rounds: Sequence[int], taught: Mapping[str, RoundStages]) -> None:
    """Train on lessons. `taught`: of this and earlier rounds."""
    config = work.config
    lessons = {name: RoundLessons(work, of) for name, of in taught.items()}
    model = expect_skill(work.trainable_model(work.weights, config.timestep_shift), FlowPolicy)
    models = _teachers(work)
    settings = DistilSettings(config.states, config.timestep_shift, config.reused, config.weighting)
    distiller = Distiller(model, models, settings)
    lengths = [updates(config, round_, len(lessons[round_.set_name])) for round_ in (config.rounds[i] for i in rounds)]
    total = Updates(sum(lengths), config.batch.accumulate, rows=config.batch.prompts)
    sources: dict[str, Source] = dict(lessons)  # type: ignore[arg-type]
    schedule = curriculum(config, rounds, lengths)
    if THOUGHTS in config.replays:
        sources[THOUGHTS] = ConcatDataset([RoundLessons(work, of, thinks=True) for of in taught.values()])  # type: ignore
    sources |= replayed(config, model, config.replays)
    result = train_stage(
        work,
        model,
        sources,
        schedule,
        total,
        stage.path,
        stage=stage.name,
        evaluate=watching(work, model, stage, rounds) if schedule.check_every else None,
        callbacks=_follows(config, models[0][0], model),
        collate=distiller.collate,
    )
    work.save_trained(model, stage)
    stage.result = {
        **result.facts(),
        "lessons": {name: len(some) for name, some in lessons.items()},
        **teachers.facts(work),
        **_calls(config, stage, schedule, result.updates),
    }


def _teachers(work: Work[DistilConfig]) -> list[tuple[FlowPolicy, float]]:
    """Those whose velocities are learned, with their weights; guided as `guidance` says."""
    config, others = work.config, work.config.other_teachers
    models = list(teachers.load(work).values()) or [work.initial_model()]
    if config.teacher == "ema" and work.weights is not None:
        load_weights(models[0], work.weights)
    followed = [expect_skill(model, FlowPolicy) for model in models]
    for teacher in followed:
        teacher.sampling = teacher.sampling_at(config.guidance or 1.0)
    return list(zip(followed, [getattr(other, "weight", 1.0) for other in others.values()] or [1.0], strict=True))


def expect_same_latents(
    config: DistilConfig, others: Mapping[str, UnifiedModel], student: UnifiedModel | None = None
) -> None:
    """Raises UserError for a teacher with another latent space. student: None compares models without weights."""
    family = family_of(config.model.family)
    expected = _latent_space(config, family, student or family.skeleton(on_disk(config.model), config.seed)[0])
    for key, model in others.items():
        for name, value in _latent_space(config, family_of(teachers.config_of(config, key).family), model).items():
            if value != expected[name]:
                shown = f" ({value}, not {expected[name]})" if len(f"{value}") < 20 else ""
                message = f"{config.other_teachers[key].checkpoint} has another latent space than the student"
                hint = "Velocities are compared in one latent space. STARS learns from images of any model."
                raise UserError(f"{key}: {message}: {name}{shown}", hint)


def _latent_space(config: DistilConfig, family: Family, model: UnifiedModel) -> dict[str, Any]:
    """What models have alike that can be asked at one state. Weights are compared as bfloat16."""
    policy, shapes = expect_skill(model, FlowPolicy), family.shapes(model)
    side = config.model.architecture.image_size
    shown = (np.zeros((side, side, 3), np.uint8),) if config.model.edits else ()
    vae = {name: tensor for name, tensor in model.state_dict().items() if family.part_of(name) == "VAE"}
    about = getattr(getattr(model, "vae", None), "config", None)
    scales = ("scaling_factor", "shift_factor", "latents_mean", "latents_std")
    return {
        "pixels a side of a token": shapes.stride,
        "numbers a token": shapes.channels,
        "pixels of an image": policy.picture_size(Request("", "", shown)),
        "tensors of the VAE": {name: tensor.shape for name, tensor in vae.items()},
        "scale of the VAE": [getattr(about, name, None) for name in scales],
        "weights of the VAE": [t.bfloat16().double().norm().item() for t in vae.values() if not t.is_meta],
    }


def _follows(config: DistilConfig, teacher: UnifiedModel, student: UnifiedModel) -> list[Callback]:
    if config.teacher != "ema":
        return []
    from uni_train.training.callbacks import EmaTeacher

    return [EmaTeacher(teacher, student, config.teacher_decay)]


def _calls(config: DistilConfig, stage: StageRun, schedule: Curriculum, updates: int) -> dict[str, int]:
    """Counts of teacher velocities and of student rollout steps in training, recomputed from the seeds."""
    teacher_rows = 0
    for step in range(updates):
        seed = derive_seed(config.seed, stage.name, "counts", step)
        rows = row_counts(schedule.mixture(step), config.batch.prompts, seed)
        teacher_rows += sum(n for name, n in rows.items() if name != PRETRAIN)
    steps, draws = config.model.sampling.steps, config.batch.noise_draws
    draws = draws if config.states == "noised" else min(draws, steps)
    return {
        "velocities": 0 if config.reused else teacher_rows * draws * max(1, len(config.other_teachers)),
        "rollout": teacher_rows * (steps - 1) if config.states == "student" else 0,
    }


def blank(config: DistilConfig, model: UnifiedModel, item: Item, image: np.ndarray | None) -> Example:
    """An item as an example with states of the right shape, all zero."""
    shown = () if image is None else (image,)
    asked = family_of(config.model.family).shapes(model).image_request(Request(item.id, item.prompt, shown))
    zeros = np.zeros((config.batch.noise_draws, asked.tokens, asked.channels), np.float32)
    height, width = (side * asked.stride for side in asked.grid)
    return Example(item.prompt, shown, states=States(np.full(len(zeros), 0.5), zeros, zeros, (height, width)))
