"""Stage (III) of STARS, fine-tuning: prompt -> image, with the thought forgotten (UniSandbox, eq. 3).

A batch mixes the accepted samples of this round, those of earlier rounds (replay), and rows of the pretraining mixture,
which keep thinking, captioning and verifying alive. What is mixed when is the curriculum's business.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_gen.registry import get_task
from eval.scored import completed, shard_path
from uni_train.config.kinds import Updates, stage_list
from uni_train.errors import UserError
from uni_train.models.base import Example, UnifiedModel
from uni_train.recipes.stars.config import RoundConfig, RoundsConfig, StarsConfig
from uni_train.recipes.stars.filtering import kept_rows
from uni_train.recipes.stars.rounds import most_updates, updates
from uni_train.stages.evaluate import normal_accuracy
from uni_train.stages.finetune import first_batch, fit
from uni_train.stages.work import MODEL, StageRun, Work
from uni_train.training.curriculum import Constant, Curriculum, Level, Ramp, Threshold
from uni_train.training.data import items
from uni_train.training.data.rows import Chosen, Row, RowFile, Rows, open_rows
from uni_train.training.steps import Source

if TYPE_CHECKING:
    from uni_train.training.callbacks import Evaluate

PRETRAIN = "pretrain"
SOLVED = "solved"

Filtered = Mapping[str, tuple[RoundConfig, StageRun]]
"""Set name -> the round that sampled it last, and its finished stage with the filter's verdicts."""


def run(work: Work[StarsConfig], stage: StageRun, rounds: Sequence[int], filtered: Filtered) -> None:
    """Train on what the filter kept. `filtered`: of this and earlier rounds."""
    config = work.config
    model = work.model(work.weights)
    model.prepare_training(
        timestep_shift=config.timestep_shift,
        text_dropout=config.text_dropout,
        activation_checkpointing=config.activation_checkpointing,
    )
    sources = _sources(work, model, filtered)
    lengths = [updates(config, one, len(sources[one.set_name])) for one in (config.rounds[i] for i in rounds)]  # type: ignore[arg-type]
    total = Updates(sum(lengths), config.batch.accumulate, rows=config.batch.prompts)
    schedule = curriculum(config, rounds, lengths)
    watch = watching(work, model, stage, rounds) if schedule.check_every else None
    result = fit(work, model, sources, schedule, total, stage.path, stage=stage.name, evaluate=watch)
    work.trained(model, stage)
    stage.outputs = sorted(file for file in (stage.path / MODEL).rglob("*") if file.is_file())
    stage.result = {
        "updates": result.updates,
        "seconds": result.seconds,
        "examples": {name: len(source) for name, source in sources.items() if isinstance(source, Rows)},
        "final_loss": sum(result.losses[-20:]) / max(len(result.losses[-20:]), 1),
    }


def watching(work: Work[Any], model: UnifiedModel, stage: StageRun, rounds: Sequence[int]) -> Evaluate:
    """Normal accuracy on each round's set, for the threshold curriculum."""

    def watch(step: int) -> Mapping[str, float]:
        folder = stage.path / "checks" / f"step={step:08d}"  # every check asks the same validation prompts
        names = [work.config.rounds[i].set_name for i in rounds]
        return {name: normal_accuracy(model, work, name, folder / name) for name in names}

    return watch


def replayed(config: RoundsConfig, model: UnifiedModel) -> Source | None:
    """Rows of the model's pretraining, where a round replays such. Raises UserError: it has none."""
    if not any(one.replay.get(PRETRAIN) for one in config.rounds):
        return None
    replay = model.replay_rows({one.task for one in config.rounds})
    if replay is None:
        raise UserError(
            f"{model.name} has no pretraining rows to replay",
            "Set pretrain_replay=0, or replay sets of earlier rounds alone.",
        )
    return any_of(replay, images=config.trained == "moe_gen")


def _sources(work: Work[StarsConfig], model: UnifiedModel, filtered: Filtered) -> dict[str, Source]:
    config = work.config
    sources: dict[str, Source] = {}
    for name, (one, stage) in filtered.items():
        kept = work.ranks.from_main(partial(kept_rows, stage.shards, config, one))
        if not kept:
            raise UserError(
                f"the filter kept none of the samples of {name}, so there is nothing to train on ({stage.path})",
                "Sample more prompts or candidates, start from a better model, or use filter=verifier or filter=none.",
            )
        sources[name] = kept_samples(stage.shards, kept, config.batch.noise_draws)
    pretraining = replayed(config, model)
    if pretraining is not None:
        sources[PRETRAIN] = pretraining
    if any(one.replay.get(SOLVED) for one in config.rounds):
        sources[SOLVED] = solved_items(config)
    return sources


def solved_items(config: StarsConfig) -> Rows:
    """Rows of `config.solved`, prompt -> image. Raises UserError: a missing file."""
    assert config.solved is not None, "config.py has checked that replay has it"
    return _images_of(open_rows(config.solved), config.batch.noise_draws)


def kept_samples(shards: Path, kept: Sequence[int], noise_draws: int) -> Rows:
    """Samples of a filtered stage, prompt -> image, by their rows over all its shards. Images stay on disk until a
    batch needs them."""
    files = [str(shard_path(shards, index)) for index in sorted(completed(shards))]
    return _images_of(Chosen(open_rows(files), kept), noise_draws)


def _images_of(rows: RowFile, noise_draws: int) -> Rows:
    parse = items.parser(("image",))

    def without_thought(row: Row, random_: random.Random) -> Example:
        return replace(parse(row, random_), noise_draws=noise_draws)

    return Rows(rows, without_thought, "error", lambda example: 0, 0)


def any_of(makers: Mapping[str, tuple[float, Callable[[random.Random], Example]]], images: bool = False) -> Source:
    """Rows of all kinds, by their shares. images: of those with an image to draw; other rows teach the generation
    weights nothing."""
    names = [name for name, (_, make) in makers.items() if not images or make(random.Random(0)).target is not None]
    weights = [makers[name][0] for name in names]

    def draw(random_: random.Random) -> Example:
        return makers[random_.choices(names, weights)[0]][1](random_)

    return draw


def curriculum(config: RoundsConfig, rounds: Sequence[int], lengths: Sequence[int]) -> Curriculum:
    """The curriculum of one fine-tuning: a round's own mixture, or one over all rounds. lengths: updates of each."""
    parts = []
    for i in rounds:
        one = config.rounds[i]
        rest = sum(one.replay.values())
        replayed = {name: share for name, share in one.replay.items() if share}
        parts.append({one.set_name: max(1 - rest, 0.0), **replayed})
    kind = config.schedule.kind
    if kind == "sequential":
        return Constant(parts[0])
    if kind == "mixed":
        even = {config.rounds[i].set_name: 1 / len(rounds) for i in rounds}
        replay = max(part.get(PRETRAIN, 0.0) for part in parts)
        shares: dict[str, float] = {name: share * (1 - replay) for name, share in even.items()}
        if replay:
            shares[PRETRAIN] = replay
        return Constant(shares)
    if kind == "ramp":
        return Ramp(parts, sum(lengths))
    levels = [
        Level(part, config.rounds[i].set_name, config.schedule.threshold, length)
        for i, part, length in zip(rounds, parts, lengths, strict=True)
    ]
    return Threshold(levels, config.schedule.check_every)


def first_update(config: StarsConfig, model: UnifiedModel, most: int | None = None) -> list[Sequence[Example]]:
    """Prompts of the first training's sets with blank pictures, and its mixture as far as there are rows for it."""
    first = next(stage for stage in stage_list(config) if stage.kind == "finetune")
    shares = dict(curriculum(config, first.rounds, most_updates(config, first.rounds)).mixture(0))
    blank = np.zeros((config.model.architecture.image_size,) * 2 + (3,), np.uint8)
    sampled = {one.set_name: one for one in config.rounds}
    sources: dict[str, Source] = {}
    for name in list(shares):
        if name == PRETRAIN:
            replay = model.replay_rows({one.task for one in config.rounds})
            if replay is None:
                del shares[name]
            else:
                sources[name] = any_of(replay, images=config.trained == "moe_gen")
            continue
        if name == SOLVED:
            sources[name] = solved_items(config)
            continue
        one = sampled[name]
        task = get_task(one.task, config.data.world)
        asked = [(item, task.input_image(item)) for item in task.generate(64, one.level, "train", config.seed)]
        sources[name] = [
            Example(
                item.prompt,
                () if shown is None else (shown,),
                target=blank if shown is None else shown,
                noise_draws=config.batch.noise_draws,
            )
            for item, shown in asked
        ]
    batch = config.batch
    return first_batch(model, sources, shares, config.seed, batch.prompts, batch.accumulate, most=most)
