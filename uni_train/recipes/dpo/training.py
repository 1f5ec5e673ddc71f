"""The pairs of an update, of a round's images or of a file, and what is learned from them."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uni_train.config.kinds import Updates
from uni_train.core.errors import UserError
from uni_train.core.seeds import rng
from uni_train.data_gen.task import Item
from uni_train.eval.scored import read_folder
from uni_train.models.base import Example, Trainable
from uni_train.recipes.dpo.config import DpoConfig
from uni_train.recipes.stars import finetune
from uni_train.recipes.stars.config import SOLVED, RoundConfig
from uni_train.recipes.stars.filtering import kept_rows
from uni_train.recipes.stars.rounds import updates
from uni_train.stages.train_stage import adapters, first_batch, run_logger, say_idle, skipped_rows
from uni_train.stages.work import StageRun, Work
from uni_train.training.curriculum import Constant
from uni_train.training.data.rows import BadRow, Row, RowFile, Rows, caption_of, open_rows
from uni_train.training.data.text_to_image import CAPTIONS
from uni_train.training.steps import Source

LAST = 20  # updates whose metrics are shown
PAIRS = "pairs"
ALONE = Constant({PAIRS: 1.0})


def run(work: Work[DpoConfig], stage: StageRun, rounds: Sequence[int], filtered: finetune.Filtered) -> None:
    """Train on pairs of what the filter kept and refused (`filtered`: of these and earlier rounds), or of the file."""
    config, counts = work.config, dict[str, Any]()
    model = work.trainable_model(work.weights, config.timestep_shift)
    sources, again = dict[str, Source](), finetune.replayed(config, model, config.replays)
    for name, (round_, of) in filtered.items():
        rows, counts[name] = work.ranks.from_main(partial(matched, of.shards, config, round_))
        said = "of {prompts} prompts of {0} {mixed} have a right and a wrong image".format(name, **counts[name])
        work.progress.say(f"  {said}: {len(rows) // 2} pairs")
        if not rows:
            hint = "Sample more prompts or candidates, choose an easier or harder level, or another filter."
            raise UserError(f"{said}, so there is nothing to prefer ({of.path})", hint)
        sources[name] = preferences(Matched(finetune.kept_samples(of.shards, rows)), config)
    if config.pairs is not None:
        sources[PAIRS] = preferences(open_rows(config.pairs), config, model)
    for read in (sources.get(PAIRS), again.get(SOLVED)):
        if isinstance(read, Rows):
            work.ranks.from_main(read.check)
    lengths = [updates(config, config.rounds[i], counts[config.rounds[i].set_name]["pairs"]) for i in rounds]
    schedule = finetune.curriculum(config, rounds, lengths) if rounds else ALONE
    watch = finetune.watching(work, model, stage, rounds) if schedule.check_every else None
    # Lightning takes seconds to import, which --dry-run need not wait for.
    from uni_train.training.dpo import fit_dpo
    from uni_train.training.fit import METRICS
    from uni_train.training.metric_log import read_metrics
    from uni_train.training.supervised import FitOptions

    length = Updates(config.updates or sum(lengths), config.batch.accumulate, rows=config.batch.prompts)
    logger = run_logger(work, stage.name)
    with adapters(work, model, stage.name, stage.path):
        options = FitOptions(stage=stage.name, trained=config.trained, logger=logger, description="  updates")
        result = fit_dpo(
            model, {**sources, **again}, schedule, config, length, stage.path, options,
            beta=config.beta, sft_weight=config.sft_weight, replayed=again, evaluate=watch,
        )  # fmt: skip
    say_idle(work, result)
    work.save_trained(model, stage)
    last, names = read_metrics(stage.path / METRICS)[-LAST:], ("accuracy", "margin", "chosen_reward", "rejected_reward")
    means = {name: float(np.mean([line[name] for line in last])) for name in names}
    shown = ", ".join(f"{name.replace('_', ' ')} {value:z.3f}" for name, value in means.items())
    worse = "; chosen images are predicted worse than at first (docs/dpo.md#what-to-look-at)"
    work.progress.say(f"  the last {len(last)} updates: {shown}{worse if means['chosen_reward'] < 0 else ''}")
    skipped = skipped_rows(work, [source for source in sources.values() if isinstance(source, Rows)])
    stage.result = {**result.facts(), **means, "preferences": counts, **skipped}


def matched(shards: Path, config: DpoConfig, round_: RoundConfig) -> tuple[list[int], dict[str, int]]:
    """Rows of an accepted and of a refused image of one prompt, in turns, and their counts.

    Accepted is what STARS would train on. Each image is in one pair at most, by a hash; what was not drawn is in none.
    """
    kept, by_prompt = set(kept_rows(shards, config, round_)), dict[str, tuple[list[int], list[int]]]()
    for row, answer in enumerate(read_folder(shards, images=False)):
        accepted, refused = by_prompt.setdefault(answer.sample.ask.case.id, ([], []))
        verdict = answer.filter_verdict
        if row in kept:
            accepted.append(row)
        elif answer.sample.status == "ok" and verdict is not None and not verdict.passed:
            refused.append(row)
    rows: list[int] = []
    for name, sides in by_prompt.items():
        for side in sides:
            rng(config.seed, "preferences", name).shuffle(side)
        rows += [row for pair in zip(*sides, strict=False) for row in pair]
    mixed = sum(all(sides) for sides in by_prompt.values())
    return rows, {"prompts": len(by_prompt), "mixed": mixed, "pairs": len(rows) // 2}


class Matched(RowFile):
    """Rows of samples, accepted and refused ones in turns, by twos."""

    def __init__(self, rows: RowFile) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows) // 2

    def __getitem__(self, index: int) -> Row:
        chosen, rejected = self.rows[2 * index], self.rows[2 * index + 1]
        asked = {key: chosen.values.get(key) for key in ("prompt", "images", "input_image")}
        return Row({**asked, "chosen": chosen.values["image"], "rejected": rejected.values["image"]}, chosen.folder)

    def where(self, index: int) -> str:
        return self.rows.where(2 * index)


def preferences(rows: RowFile, config: DpoConfig, model: Trainable | None = None) -> Rows:
    """Rows as `Preference`; model: whose prompts and images they have to suit."""
    from uni_train.training.dpo import Preference

    def parse(row: Row, random_: random.Random) -> Any:
        images = chosen_and_rejected(row)
        prompt, shown = caption_of(row, CAPTIONS, random_), row.images("images", "input_image")
        draws = config.batch.noise_draws
        chosen, rejected = (Example(prompt, shown, target=image, noise_draws=draws) for image in images)
        return Preference(chosen, rejected)

    tokens = (lambda pair: 0) if model is None else (lambda pair: model.example_tokens(pair.chosen))
    return Rows(rows, parse, config.data.bad_rows, tokens, sys.maxsize)


def chosen_and_rejected(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Two images of one size, by trl's keys or Pick-a-Pic's. Raises BadRow."""
    keys = ("chosen", "rejected")
    if row.find(*keys) is None and row.find("jpg_0") is not None:
        if (label := row.get("label_0")) not in (0, 1):
            raise BadRow(f"label_0 is {label}: neither image is preferred", "Leave out ties with data.bad_rows=skip.")
        keys = ("jpg_0", "jpg_1") if label == 1 else ("jpg_1", "jpg_0")
    chosen, rejected = (row.image(row.get(key), key) for key in keys)
    (height, width), (h, w) = chosen.shape[:2], rejected.shape[:2]
    if height * w != width * h:
        raise BadRow(f"{keys[0]} and {keys[1]} have {width} x {height} and {w} x {h} pixels", "Crop one of them.")
    if h != height:
        from PIL import Image

        rejected = np.asarray(Image.fromarray(rejected).resize((width, height), Image.Resampling.BICUBIC))
    if np.array_equal(chosen, rejected):
        raise BadRow(f"{keys[0]} and {keys[1]} are the same image")
    return chosen, rejected


def first_update(config: DpoConfig, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
    """Both images of each pair of the first update; of rounds, blank ones."""
    from uni_train.training.dpo import Preference

    def blank(item: Item, image: np.ndarray | None) -> Any:
        return Preference(finetune.blank(config, item, image), finetune.blank(config, item, image))

    rows, split = config.batch.prompts, config.batch.accumulate
    if config.pairs is None:
        batches: Sequence[Sequence[Any]] = finetune.first_update(config, model, "dpo", blank, most)
    else:
        given = {PAIRS: preferences(open_rows(config.pairs), config, model)}
        batches = first_batch(model, given, ALONE.shares, config.seed, rows, split, most=most)
    return [[one for row in micro for one in (row.both() if hasattr(row, "both") else (row,))] for micro in batches]
