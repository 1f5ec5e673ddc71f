"""Stage (III) of STARS, fine-tuning: prompt -> image, with the thought forgotten (UniSandbox, eq. 3).

A batch mixes the accepted samples of this round, those of earlier rounds (replay), and the same with their thoughts. It
also has rows of the pretraining mixture, so that the model does not forget to think, caption and verify. The curriculum
decides the mixture of each update.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.config.kinds import Updates, run_task, stage_list
from uni_train.core.errors import UserError
from uni_train.data_gen.task import Item
from uni_train.eval.scored import completed, shard_path
from uni_train.models.base import Example, Trainable
from uni_train.recipes.stars.config import NOT_SETS, PRETRAIN, SOLVED, THOUGHTS, RoundConfig, RoundsConfig, StarsConfig
from uni_train.recipes.stars.filtering import kept_rows
from uni_train.recipes.stars.rounds import most_updates, updates
from uni_train.recipes.stars.sampling import round_items
from uni_train.stages.evaluate import normal_accuracy
from uni_train.stages.train_stage import first_batch, train_stage
from uni_train.stages.work import StageRun, Work
from uni_train.training.curriculum import Constant, Curriculum, Level, Ramp, Threshold
from uni_train.training.data import items
from uni_train.training.data.rows import Chosen, Joined, RowFile, Rows, open_rows
from uni_train.training.steps import Source

if TYPE_CHECKING:
    from uni_train.training.callbacks import Evaluate

Filtered = Mapping[str, tuple[RoundConfig, StageRun]]
"""Set name -> a round of it, and the finished stage with the filter's verdicts whose samples it trains on."""


def run(work: Work[StarsConfig], stage: StageRun, rounds: Sequence[int], filtered: Filtered) -> None:
    """Train on what the filter kept. `filtered`: of this and earlier rounds."""
    config = work.config
    model = work.trainable_model(work.weights, config.timestep_shift)
    sources = _sources(work, model, filtered)
    lengths = [updates(config, round_, len(sources[round_.set_name])) for round_ in (config.rounds[i] for i in rounds)]  # type: ignore[arg-type]
    total = Updates(sum(lengths), config.batch.accumulate, rows=config.batch.prompts)
    schedule = curriculum(config, rounds, lengths)
    watch = watching(work, model, stage, rounds) if schedule.check_every else None
    result = train_stage(work, model, sources, schedule, total, stage.path, stage=stage.name, evaluate=watch)
    work.save_trained(model, stage)
    stage.result = {
        **result.facts(),
        "examples": {name: len(source) for name, source in sources.items() if isinstance(source, Rows)},
    }


def watching(work: Work[Any], model: Trainable, stage: StageRun, rounds: Sequence[int]) -> Evaluate:
    """Normal accuracy on each round's set, for the threshold curriculum."""

    def watch(step: int) -> Mapping[str, float]:
        folder = stage.path / "checks" / f"step={step:08d}"  # every check asks the same validation prompts
        names = [work.config.rounds[i].set_name for i in rounds]
        return {name: normal_accuracy(model, work, name, folder / name) for name in names}

    return watch


def replayed(config: RoundsConfig, model: Trainable, names: Collection[str]) -> dict[str, Source]:
    """The sources among `names` that no round samples: rows of the model's pretraining, and solved items.

    Raises:
        UserError: the model has no such rows; a missing file.
    """
    sources: dict[str, Source] = {}
    if PRETRAIN in names:
        rows = model.replay_rows({round_.task for round_ in config.rounds})
        if rows is None:
            raise UserError(
                f"{model.name} has no pretraining rows to replay",
                "Set pretrain_replay=0, or replay sets of earlier rounds alone.",
            )
        sources[PRETRAIN] = any_of(rows, images=config.lora.only_generation(config.trained))
    if SOLVED in names:
        assert isinstance(config, StarsConfig) and config.solved is not None, "config.py has checked it"
        sources[SOLVED] = items.images_of(
            open_rows(config.solved), config.batch.noise_draws, bad=config.data.bad_rows, tokens=model.example_tokens,
            symmetries=config.augment is not None,
        )  # fmt: skip
    return sources


def _sources(work: Work[StarsConfig], model: Trainable, filtered: Filtered) -> dict[str, Source]:
    config = work.config
    sources: dict[str, Source] = {}
    samples = []
    for name, (round_, stage) in filtered.items():
        kept = work.ranks.from_main(partial(kept_rows, stage.shards, config, round_))
        if not kept:
            raise UserError(
                f"the filter kept none of the samples of {name}, so there is nothing to train on ({stage.path})",
                "Sample more prompts or candidates, start from a better model, or use filter=verifier or filter=none.",
            )
        samples.append(kept_samples(stage.shards, kept))
        sources[name] = items.images_of(samples[-1], config.batch.noise_draws)
    if THOUGHTS in config.replays:
        sources[THOUGHTS] = items.images_of(Joined(samples), config.batch.noise_draws, thoughts=True)
    again = replayed(config, model, config.replays)
    if isinstance(solved := again.get(SOLVED), Rows):
        work.ranks.from_main(solved.check)
    return {**sources, **again}


def kept_samples(shards: Path, kept: Sequence[int]) -> RowFile:
    """The kept samples of a filtered stage; `kept` numbers rows over all its shards."""
    files = [str(shard_path(shards, index)) for index in sorted(completed(shards))]
    return Chosen(open_rows(files), kept)


def any_of(makers: Mapping[str, tuple[float, Callable[[random.Random], Example]]], images: bool = False) -> Source:
    """A source that draws kinds of rows by their shares. images: only kinds with a target image, as other rows have no
    gradient for the generation weights."""
    names = [name for name, (_, make) in makers.items() if not images or make(random.Random(0)).target is not None]
    weights = [makers[name][0] for name in names]

    def draw(random_: random.Random) -> Example:
        return makers[random_.choices(names, weights)[0]][1](random_)

    return draw


def curriculum(config: RoundsConfig, rounds: Sequence[int], lengths: Sequence[int]) -> Curriculum:
    """The curriculum of one training: a round's own mixture, or one over all rounds. lengths: updates of each."""
    parts = []
    for i in rounds:
        round_ = config.rounds[i]
        rest = sum(round_.replay.values())
        replayed = {name: share for name, share in round_.replay.items() if share}
        parts.append({round_.set_name: max(1 - rest, 0.0), **replayed})
    kind = config.schedule.kind
    if kind == "sequential":
        return Constant(parts[0])
    if kind == "mixed":
        names = [config.rounds[i].set_name for i in rounds]
        even = {name: names.count(name) / len(rounds) for name in names}
        replay = {name: share for name in NOT_SETS if (share := max(part.get(name, 0.0) for part in parts))}
        rest = 1 - sum(replay.values())
        return Constant({**{name: share * rest for name, share in even.items()}, **replay})
    if kind == "ramp":
        return Ramp(parts, sum(lengths))
    levels = [
        Level(part, config.rounds[i].set_name, config.schedule.threshold, length)
        for i, part, length in zip(rounds, parts, lengths, strict=True)
    ]
    return Threshold(levels, config.schedule.check_every)


def first_update(
    config: RoundsConfig,
    model: Trainable,
    training: str,
    example: Callable[[Item, np.ndarray | None], Example],
    most: int | None = None,
) -> list[Sequence[Example]]:
    """The first update of the first stage of kind `training`; rows that the model cannot replay are left out.

    Args:
        example: what an item of a round, with its input image, stands for: no sample of it is drawn yet.
        most: as `RecipeKind.first_update`.
    """
    first = next(stage for stage in stage_list(config) if stage.kind == training)
    shares = dict(curriculum(config, first.rounds, most_updates(config, first.rounds)).mixture(0))
    if model.replay_rows(()) is None:
        shares.pop(PRETRAIN, None)
    sources = replayed(config, model, shares)
    for round_ in config.rounds:
        if round_.set_name in shares:
            task = run_task(config, round_.task)
            items = round_items(config, replace(round_, prompts=min(64 * task.items_per_draw, round_.prompts)))
            examples = [example(item, task.input_image(item)) for item in items]
            sources[round_.set_name] = examples
            if THOUGHTS in shares:
                sources[THOUGHTS] = [replace(row, thought=i.thought) for row, i in zip(examples, items, strict=True)]
    batch = config.batch
    return first_batch(model, sources, shares, config.seed, batch.prompts, batch.accumulate, most=most)


def blank(config: StarsConfig, item: Item, image: np.ndarray | None) -> Example:
    """An item with a blank target image of the size that the model draws."""
    empty = np.zeros((config.model.architecture.image_size,) * 2 + (3,), np.uint8)
    shown, draws = () if image is None else (image,), config.batch.noise_draws
    return Example(item.prompt, shown, target=empty if image is None else image, noise_draws=draws)
