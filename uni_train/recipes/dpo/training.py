"""The pairs of an update, of a round's images or of a file, and what is learned from them."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from uni_train.config.kinds import Updates
from uni_train.core.errors import UserError
from uni_train.core.seeds import rng
from uni_train.data_gen.task import Item
from uni_train.eval.scored import read_folder
from uni_train.models.base import Example, Trainable
from uni_train.recipes.dpo.config import PAIRS, DpoConfig
from uni_train.recipes.stars import finetune
from uni_train.recipes.stars.config import SOLVED, RoundConfig
from uni_train.recipes.stars.filtering import kept_rows
from uni_train.recipes.stars.rounds import updates
from uni_train.stages.train_stage import adapters, first_batch, run_logger, say_idle, skipped_rows
from uni_train.stages.work import StageRun, Work
from uni_train.training.curriculum import Constant, Curriculum
from uni_train.training.data.rows import BadRow, Row, RowFile, Rows, caption_of, open_rows
from uni_train.training.data.text_to_image import CAPTIONS
from uni_train.training.steps import Source

if TYPE_CHECKING:
    from uni_train.training.callbacks import Evaluate
    from uni_train.training.dpo import Preference


def run(work: Work[DpoConfig], stage: StageRun, rounds: Sequence[int], filtered: finetune.Filtered) -> None:
    """Train on pairs of what the filter kept and refused. `filtered`: of this and earlier rounds."""
    config = work.config
    model = work.trainable_model(work.weights, config.timestep_shift)
    sources: dict[str, Source] = {}
    counts: dict[str, dict[str, int]] = {}
    for name, (round_, of) in filtered.items():
        found = work.ranks.from_main(partial(matched, of.shards, config, round_))
        counts[name] = {"prompts": found.prompts, "mixed": found.mixed, "pairs": len(found.pairs)}
        said = f"of {found.prompts} prompts of {name} {found.mixed} have a right and a wrong image"
        work.progress.say(f"  {said}: {len(found.pairs)} pairs")
        if not found.pairs:
            hint = "Sample more prompts or candidates, choose an easier or harder level, or another filter."
            raise UserError(f"{said}, so there is nothing to prefer ({of.path})", hint)
        sources[name] = _preferences(Matched(finetune.kept_samples(of.shards, range(found.rows)), found.pairs), config)
    again = finetune.replayed(config, model, config.replays)
    if isinstance(solved := again.get(SOLVED), Rows):
        work.ranks.from_main(solved.check)
    lengths = [
        updates(config, round_, counts[round_.set_name]["pairs"]) for round_ in (config.rounds[i] for i in rounds)
    ]
    schedule = finetune.curriculum(config, rounds, lengths)
    watch = finetune.watching(work, model, stage, rounds) if schedule.check_every else None
    _train(work, stage, model, {**sources, **again}, schedule, sum(lengths), watch, again)
    stage.result["preferences"] = counts


def run_file(work: Work[DpoConfig], stage: StageRun) -> None:
    """Train on the pairs of the recipe's file."""
    model = work.trainable_model(work.weights, work.config.timestep_shift)
    rows = pairs_of_file(work.config, model)
    if not (stage.path / "metrics.jsonl").exists():
        work.ranks.from_main(rows.check)
    _train(work, stage, model, {PAIRS: rows}, Constant({PAIRS: 1.0}), updates_of_file(work.config))
    stage.result |= {"preferences": {PAIRS: {"pairs": len(rows)}}, **skipped_rows(work, [rows])}


def _train(
    work: Work[DpoConfig],
    stage: StageRun,
    model: Trainable,
    sources: Mapping[str, Source],
    schedule: Curriculum,
    total: int,
    evaluate: Evaluate | None = None,
    replayed: Collection[str] = (),
) -> None:
    # Lightning takes seconds to import, which --dry-run need not wait for.
    from uni_train.training.dpo import DpoSettings, fit_dpo
    from uni_train.training.fit import METRICS
    from uni_train.training.metric_log import read_metrics
    from uni_train.training.supervised import FitOptions

    config = work.config
    length = Updates(total, config.batch.accumulate, rows=config.batch.prompts)
    with adapters(work, model, stage.name, stage.path):
        logger = run_logger(work, stage.name)
        options = FitOptions(stage=stage.name, trained=config.trained, logger=logger, description="  updates")
        result = fit_dpo(
            model, sources, schedule, config, length, stage.path, options,
            DpoSettings(config.beta, config.sft_weight), replayed=replayed, evaluate=evaluate,
        )  # fmt: skip
    say_idle(work, result)
    work.save_trained(model, stage)
    last = read_metrics(stage.path / METRICS)[-20:]
    names = ("accuracy", "margin", "chosen_reward", "rejected_reward")
    means = {name: float(np.mean([line[name] for line in last])) for name in names}
    stage.result = {**result.facts(), **means}
    shown = ", ".join(f"{name.replace('_', ' ')} {value:z.3f}" for name, value in means.items())
    work.progress.say(f"  the last {len(last)} updates: {shown}")
    if means["chosen_reward"] < 0:
        work.progress.say(
            "  warning: chosen images are predicted worse than before the training, rejected ones worse still: try a "
            "larger beta, a lower rate or sft_weight (docs/dpo.md#what-to-look-at)"
        )


# --- pairs of a round ---------------------------------------------------------------------------------------------


class Matches(NamedTuple):
    """Pairs of rows, accepted and refused; how many prompts were sampled, how many of them have both; all rows."""

    pairs: list[tuple[int, int]]
    prompts: int
    mixed: int
    rows: int


def matched(shards: Path, config: DpoConfig, round_: RoundConfig) -> Matches:
    """Accepted and refused images of each prompt, each in one pair at most, matched by a hash.

    Accepted are rows that STARS would train on. What was not drawn is neither.
    """
    kept = set(kept_rows(shards, config, round_))
    by_prompt: dict[str, tuple[list[int], list[int]]] = {}
    rows = 0
    for row, answer in enumerate(read_folder(shards, images=False)):
        accepted, refused = by_prompt.setdefault(answer.sample.ask.case.id, ([], []))
        verdict, rows = answer.filter_verdict, row + 1
        if row in kept:
            accepted.append(row)
        elif answer.sample.status == "ok" and verdict is not None and not verdict.passed:
            refused.append(row)
    pairs: list[tuple[int, int]] = []
    for name, sides in by_prompt.items():
        for side in sides:
            rng(config.seed, "preferences", name).shuffle(side)
        pairs += zip(*sides, strict=False)
    return Matches(pairs, len(by_prompt), sum(all(sides) for sides in by_prompt.values()), rows)


class Matched:
    """Rows of samples by twos: those of `pairs` as `parse` reads them."""

    def __init__(self, rows: RowFile, pairs: Sequence[tuple[int, int]]) -> None:
        self.rows, self.pairs = rows, pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Row:
        chosen, rejected = (self.rows[row] for row in self.pairs[index])
        both = {"chosen": chosen.values["image"], "rejected": rejected.values["image"]}
        return Row(
            {**both, **{key: chosen.values.get(key) for key in ("prompt", "images", "input_image")}}, chosen.folder
        )

    def where(self, index: int) -> str:
        return self.rows.where(self.pairs[index][0])


def first_update(config: DpoConfig, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
    """Both images of each pair of the first update; of rounds, blank ones."""
    from uni_train.training.dpo import Preference

    def blank(item: Item, image: np.ndarray | None) -> Any:
        one = finetune.blank(config, item, image)
        return Preference(one, one)

    if config.pairs is None:
        batches: Any = finetune.first_update(config, model, "dpo", blank, most)
    else:
        rows, batch = {PAIRS: pairs_of_file(config, model)}, config.batch
        batches = first_batch(model, rows, {PAIRS: 1.0}, config.seed, batch.prompts, batch.accumulate, most=most)
    return [
        [one for row in micro for one in (row.both() if isinstance(row, Preference) else (row,))] for micro in batches
    ]


# --- pairs of a file ----------------------------------------------------------------------------------------------


def pairs_of_file(config: DpoConfig, model: Trainable) -> Rows:
    """Raises UserError: the file is missing, damaged or of another kind, or has no rows."""
    assert config.pairs is not None
    return _preferences(open_rows(config.pairs), config, model)


def updates_of_file(config: DpoConfig) -> int:
    """Raises UserError, as `pairs_of_file`."""
    if config.updates is not None:
        return config.updates
    assert config.epochs is not None and config.pairs is not None, "config.py has checked it"
    return max(1, math.ceil(round(config.epochs * len(open_rows(config.pairs)) / config.batch.prompts, 6)))


def _preferences(rows: RowFile, config: DpoConfig, model: Trainable | None = None) -> Rows:
    def several_draws(row: Row, random_: random.Random) -> Any:
        pair, draws = parse(row, random_), config.batch.noise_draws
        return replace(pair, **{k: replace(getattr(pair, k), noise_draws=draws) for k in ("chosen", "rejected")})

    def tokens(pair: Any) -> int:
        return 0 if model is None else model.example_tokens(pair.chosen)

    return Rows(rows, several_draws, config.data.bad_rows, tokens, sys.maxsize)


def parse(row: Row, random_: random.Random) -> Preference:
    """A prompt, the images that it shows, a chosen and a rejected one; or a row of Pick-a-Pic. Raises BadRow."""
    from uni_train.training.dpo import Preference

    keys = ("chosen", "rejected")
    if row.find(*keys) is None and row.find("jpg_0") is not None:
        if (label := row.get("label_0")) not in (0, 1):
            raise BadRow(f"label_0 is {label}: neither image is preferred", "Leave out ties with data.bad_rows=skip.")
        keys = ("jpg_0", "jpg_1") if label == 1 else ("jpg_1", "jpg_0")
    chosen, rejected = (row.image(row.get(key), key) for key in keys)
    (height, width), other = chosen.shape[:2], rejected.shape[:2]
    if height * other[1] != width * other[0]:
        sizes = f"{width} x {height} and {other[1]} x {other[0]} pixels"
        raise BadRow(f"{keys[0]} and {keys[1]} have {sizes}: one noise does not fit both", "Crop one of them.")
    if chosen.shape != rejected.shape:
        from PIL import Image

        rejected = np.asarray(Image.fromarray(rejected).resize((width, height), Image.Resampling.BICUBIC))
    if np.array_equal(chosen, rejected):
        raise BadRow(f"{keys[0]} and {keys[1]} are the same image")
    example = Example(caption_of(row, CAPTIONS, random_), images=row.images("images", "input_image"), target=chosen)
    return Preference(example, replace(example, target=rejected))
