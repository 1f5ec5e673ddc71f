"""The student learns the teacher's velocities, round by round or by the gap between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from data_gen.registry import get_task
from data_gen.seeds import derive_seed
from eval.scored import read_folder
from uni_train.config.kinds import Updates, stage_list
from uni_train.models.base import Example, Request, States, UnifiedModel
from uni_train.models.load import build_model, load_weights
from uni_train.recipes.distil.config import DistilConfig
from uni_train.recipes.distil.drawing import Drawn
from uni_train.recipes.stars.config import RoundConfig
from uni_train.recipes.stars.filtering import kept_rows
from uni_train.recipes.stars.finetune import PRETRAIN, curriculum, replayed, watching
from uni_train.recipes.stars.rounds import most_updates, updates
from uni_train.stages.finetune import first_batch, fit
from uni_train.stages.work import MODEL, StageRun, Work, in_batches
from uni_train.training.curriculum import Curriculum, Ramp
from uni_train.training.distillation import Distiller, DistilSettings, Lesson
from uni_train.training.steps import Source, row_counts

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback

    from uni_train.training.callbacks import Evaluate

PARTS = ("near", "middle", "far")


@dataclass(frozen=True, slots=True)
class Taught:
    """A round's finished stages. drawing: None where states are the student's own."""

    round: RoundConfig
    thinking: StageRun
    drawing: StageRun | None


def told(work: Work[DistilConfig], thinking: StageRun, one: RoundConfig) -> list[Request]:
    """What the teacher draws by: the prompts with the thoughts that the filter keeps."""
    rows = set(work.ranks.from_main(partial(kept_rows, thinking.shards, work.config, one)))
    kept = [s.sample for row, s in enumerate(read_folder(thinking.shards, images=False)) if row in rows]
    return [Request(s.ask.case.id, s.prompt, thought=s.thought, seed=s.ask.seed) for s in kept]


def run(work: Work[DistilConfig], stage: StageRun, rounds: Sequence[int], taught: Mapping[str, Taught]) -> None:
    """Train on lessons. `taught`: of this and earlier rounds."""
    config = work.config
    lessons = {name: _lessons(work, of) for name, of in taught.items()}
    model = work.model(work.weights)
    model.prepare_training(
        timestep_shift=config.timestep_shift,
        text_dropout=config.text_dropout,
        activation_checkpointing=config.activation_checkpointing,
    )
    teacher = work.placed(build_model(config.model, config.seed))
    if config.teacher == "ema" and work.weights is not None:
        load_weights(teacher, work.weights)
    teacher.sampling = teacher.sampling_at(config.guidance or 1.0)
    distiller = Distiller(model, teacher, DistilSettings(config.states, config.timestep_shift, config.reused))
    lengths = [updates(config, one, len(lessons[one.set_name])) for one in (config.rounds[i] for i in rounds)]
    total = Updates(sum(lengths), config.batch.accumulate, rows=config.batch.prompts)
    sources: dict[str, Source] = dict(lessons)  # type: ignore[arg-type]
    schedule: Curriculum
    evaluate: Evaluate
    if config.schedule.kind == "gap":
        everything = [lesson for some in lessons.values() for lesson in some]
        gaps = Gaps(work, stage, distiller, everything)
        schedule = ByGap(gaps, max(one.replay.get(PRETRAIN, 0.0) for one in config.rounds), total.total)
        sources = {name: Part(gaps, number) for number, name in enumerate(PARTS)}  # type: ignore[misc]
        gaps.measure(0)
        evaluate = gaps.measure
    else:
        schedule = curriculum(config, rounds, lengths)
        evaluate = watching(work, model, stage, rounds)
    pretraining = replayed(config, model)
    if pretraining is not None:
        sources[PRETRAIN] = pretraining
    result = fit(
        work,
        model,
        sources,
        schedule,
        total,
        stage.path,
        stage=stage.name,
        evaluate=evaluate if schedule.check_every else None,
        callbacks=_follows(config, teacher, model),
        collate=distiller.collate,
    )
    work.trained(model, stage)
    stage.outputs = sorted(file for file in (stage.path / MODEL).rglob("*") if file.is_file())
    stage.result = {
        "updates": result.updates,
        "seconds": result.seconds,
        "lessons": {name: len(some) for name, some in lessons.items()},
        "final_loss": sum(result.losses[-20:]) / max(len(result.losses[-20:]), 1),
        **_calls(config, stage, schedule, result.updates),
    }


def _follows(config: DistilConfig, teacher: UnifiedModel, student: UnifiedModel) -> list[Callback]:
    if config.teacher != "ema":
        return []
    from uni_train.training.callbacks import Following

    return [Following(teacher, student, config.teacher_decay)]


def _calls(config: DistilConfig, stage: StageRun, schedule: Curriculum, updates: int) -> dict[str, int]:
    """Velocities asked of the teacher while training, and of the student on its own way: they follow from the seeds."""
    taught = 0
    for step in range(updates):
        seed = derive_seed(config.seed, stage.name, "counts", step)
        rows = row_counts(schedule.mixture(step), config.batch.prompts, seed)
        taught += sum(n for name, n in rows.items() if name != PRETRAIN)
    looks = 0
    if isinstance(schedule, ByGap):
        looks = len(schedule.gaps.lessons) * (1 + updates // schedule.gaps.every)
    steps, draws = config.model.sampling.steps, config.batch.noise_draws
    draws = draws if config.states == "noised" else min(draws, steps)
    return {
        "velocities": 0 if config.reused else (taught + looks) * draws,
        "rollout": (taught + looks) * (steps - 1) if config.states == "student" else 0,
    }


def _lessons(work: Work[DistilConfig], of: Taught) -> list[Lesson]:
    config = work.config
    drawn = None if of.drawing is None else Drawn(of.drawing.shards, config.model.draw_batch)
    draws = config.batch.noise_draws
    return [
        Lesson(request, None if drawn is None else partial(drawn.__getitem__, row), draws)
        for row, request in enumerate(told(work, of.thinking, of.round))
    ]


# --- the curriculum without levels ----------------------------------------------------------------------------------


class Gaps:
    """Lessons in the order of the gap between student and teacher, measured every `every` updates."""

    def __init__(
        self, work: Work[DistilConfig], stage: StageRun, distiller: Distiller, lessons: Sequence[Lesson]
    ) -> None:
        seeds = [derive_seed(work.config.seed, stage.name, "gap", place) for place in range(len(lessons))]
        self.lessons = [replace(lesson, seed=seed) for lesson, seed in zip(lessons, seeds, strict=True)]
        self.distiller, self.ranks, self.batch = distiller, work.ranks, work.config.model.draw_batch
        self.every = work.config.schedule.check_every
        self.order = list(range(len(lessons)))

    def measure(self, step: int) -> Mapping[str, float]:
        """Put the lessons in order; ranks share the work. The mean gap of each part."""
        batches = [batch for _, batch in in_batches(self.lessons, self.batch)]
        own = {i: self.distiller.gaps(batches[i]) for i in range(self.ranks.rank, len(batches), self.ranks.world_size)}
        found = {i: gaps for some in self.ranks.gather(own) for i, gaps in some.items()}
        gaps = [gap for i in range(len(batches)) for gap in found[i]]
        self.order = sorted(range(len(gaps)), key=gaps.__getitem__)
        return {f"gap/{name}": float(np.mean([gaps[i] for i in self.part(n)])) for n, name in enumerate(PARTS)}

    def part(self, number: int) -> list[int]:
        """Numbers of the lessons of a third."""
        return self.order[number * len(self.order) // len(PARTS) : (number + 1) * len(self.order) // len(PARTS)]


class Part(Sequence[Lesson]):
    """One third of the lessons, which changes with the gaps."""

    def __init__(self, gaps: Gaps, number: int) -> None:
        self.gaps, self.number = gaps, number

    def __len__(self) -> int:
        return len(self.gaps.part(self.number))

    def __getitem__(self, index: int) -> Lesson:  # type: ignore[override]
        return self.gaps.lessons[self.gaps.part(self.number)[index]]


class ByGap(Ramp):
    """From the lessons that the student is nearest to, to those that it is farthest from."""

    def __init__(self, gaps: Gaps, replay: float, updates: int) -> None:
        rest = {PRETRAIN: replay} if replay else {}
        super().__init__([{name: 1 - replay, **rest} for name in PARTS], updates)
        self.gaps, self.check_every = gaps, gaps.every

    def state_dict(self) -> dict[str, list[int]]:
        return {"order": self.gaps.order}

    def load_state_dict(self, state: Mapping[str, list[int]]) -> None:
        self.gaps.order = list(state["order"])


# --- what it would train --------------------------------------------------------------------------------------------


def first_update(config: DistilConfig, model: UnifiedModel) -> list[Sequence[Example]]:
    """Prompts of the first training's sets with blank states, and its mixture as far as there are rows for it."""
    first = next(stage for stage in stage_list(config) if stage.kind == "distil")
    planned = (
        config if config.schedule.kind != "gap" else replace(config, schedule=replace(config.schedule, kind="mixed"))
    )
    shares = dict(curriculum(planned, first.rounds, most_updates(config, first.rounds)).mixture(0))
    rows = {one.set_name: one for one in config.rounds}
    sources: dict[str, Source] = {}
    for name in list(shares):
        if name == PRETRAIN:
            replay = model.replay_rows({one.task for one in config.rounds})
            if replay is None:
                del shares[name]
            else:
                sources[name] = replayed(config, model)  # type: ignore[assignment]
            continue
        asked = get_task(rows[name].task, config.data.world).generate(64, rows[name].level, "train", config.seed)
        sources[name] = [Example(item.prompt, states=_blank(config)) for item in asked]
    return first_batch(model, sources, shares, config.seed, config.batch.prompts, config.batch.accumulate)


def _blank(config: DistilConfig) -> States:
    sizes, draws = config.model.architecture, config.batch.noise_draws
    side = sizes.image_size // (sizes.latent_downsample * sizes.latent_patch)
    zeros = np.zeros((draws, side * side, sizes.latent_channels * sizes.latent_patch**2), np.float32)
    return States(np.full(draws, 0.5), zeros, zeros, (sizes.image_size, sizes.image_size))
