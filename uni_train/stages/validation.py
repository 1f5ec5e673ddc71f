"""Prompts that are not trained on, drawn while a model is trained: for people, the exact verifier or the run's rewards.

Every validation is a line of held_out.jsonl (training.callbacks.Validation) and a folder `held_out/step=00000100`. The
folder has all samples, and the images of the first ones of each level (eval/validation.py).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from uni_train.core.errors import DataError, UserError
from uni_train.core.reading_limits import read_lines
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item, Task
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.eval.sample import Ask, Scored
from uni_train.eval.scored import shard_path, write_scored
from uni_train.eval.statistics import Estimate
from uni_train.eval.validation import estimates, finished, read_validation, results_of, rewards_of
from uni_train.models.base import ImageGenerator, Request, UnifiedModel, expect_skill
from uni_train.models.batches import fitting
from uni_train.rewards.contract import Prompt, Reward, Scoring, columns_of
from uni_train.stages.gallery import case_of, log_images, rewarded, scored_image
from uni_train.stages.work import in_batches
from uni_train.training.data import edit, inferred
from uni_train.training.data.rows import BadRow, Row, missing, open_rows

FOLDER = "held_out"
LEAST = 2
"""Prompts of a file, without which there is no interval."""
MORE = f"held_out needs {LEAST} prompts or more."
_SHOWN_PROMPTS = 6  # of each level
_SHOWN_ALL = 24


@dataclass(frozen=True)
class ValidationPrompts:
    """Held-out prompts, independent of the run's seed.

    prompts: by their set: "level 4", or the name of a file. seed: of the drawing. batch: images drawn together. think:
    before it draws. rewards: of a file's prompts; items of a task are scored by their verifier. All images of prompts
    that nothing scores are kept.
    """

    prompts: Mapping[str, Sequence[Item | Prompt]]
    seed: int
    batch: int
    think: bool = False
    rewards: Sequence[Reward] = ()

    def evaluate(
        self, model: UnifiedModel, step: int, folder: Path, logger: Any = None, ranks: Ranks = ALONE
    ) -> dict[str, float]:
        """{"held_out": share of all prompts that the verifier passes, "held_out/4": the share on level 4, ...}

        By rewards {"held_out": weighted sum of their means, "held_out/liked": mean of the reward `liked`, ...}. Where
        nothing scores: {}. Samples are written to `folder`/held_out, their images to `logger` (W&B) too. All ranks call
        it, share the drawing and get the same scores.

        Raises:
            UserError: the disk is full; a reward fails, or applies to fewer than two images.
        """
        mine = ranks.on_all(lambda: self._scored(model, step, ranks))
        batches = {number: batch for part in ranks.gather(mine) for number, batch in part.items()}
        scored = [answer for number in sorted(batches) for answer in batches[number]]
        scores = self._mean_rewards(scored) if self.rewards else _success(scored)
        if ranks.is_main:
            write_scored(shard_path(folder / FOLDER / f"step={step:08d}", 0), scored)
        log_images(logger, FOLDER, [answer for answer in scored if answer.sample.parts], step)
        return scores

    def _scored(self, model: UnifiedModel, step: int, ranks: Ranks) -> dict[int, list[Scored]]:
        """This rank's batches by their numbers; the first samples of each set keep their images."""
        most, drawer = min(_SHOWN_PROMPTS, max(1, _SHOWN_ALL // len(self.prompts))), expect_skill(model, ImageGenerator)
        batches = [(name, *batch) for name, some in self.prompts.items() for batch in in_batches(some, self.batch)]
        by_number: dict[int, list[Scored]] = {}
        with Scoring(self.rewards) as scoring:
            for number in range(ranks.rank, len(batches), ranks.world_size):
                name, index, batch = batches[number]
                prompts = [prompt_of(prompt) if isinstance(prompt, Item) else prompt for prompt in batch]
                columns = columns_of(prompts, 1, index * self.batch)
                looked_at = [not self.rewards and "item" not in prompt.columns for prompt in prompts]
                kept = [place < most or look for place, look in zip(columns["place"], looked_at, strict=True)]
                asks = [self._ask(name, *row) for row in zip(prompts, kept, strict=True)]
                pairs = zip(prompts, asks, strict=True)
                requests = [Request(pair.id, pair.text, pair.images, seed=ask.seed) for pair, ask in pairs]
                if self.think:
                    both = fitting(lambda some: [*zip(*drawer.think_and_draw(some), strict=True)], requests)
                    columns["thought"], images = map(list, zip(*both, strict=True))
                else:
                    images = fitting(drawer.draw, requests)
                note()
                if self.rewards:
                    scoring.add([prompt.text for prompt in prompts], images, columns)
                rows = zip(prompts, asks, images, kept, strict=True)
                by_number[number] = [scored_image(step, *row) for row in rows]
            if not self.rewards or not by_number:
                return by_number
            scores, rank = scoring.scores(), itertools.count()
        return {number: [rewarded(answer, scores, next(rank)) for answer in some] for number, some in by_number.items()}

    def _ask(self, name: str, prompt: Prompt, keep: bool) -> Ask:
        case = replace(case_of(prompt, keep), set=name)
        return Ask(case, "cot" if self.think else "normal", 0, derive_seed("held out", self.seed, prompt.id))

    def _mean_rewards(self, scored: Sequence[Scored]) -> dict[str, float]:
        values = rewards_of(scored)
        for name, some in values.items():
            if len(some) < LEAST:
                raise UserError(
                    f"{scored[0].sample.ask.case.set}: {name} has a value for {len(some)} of {len(scored)} images", MORE
                )
        means = {name: float(np.mean(some)) for name, some in values.items()}
        total = sum(reward.weight * means[reward.name] for reward in self.rewards)
        return {"held_out": total, **{f"held_out/{name}": mean for name, mean in means.items()}}


def _success(scored: Sequence[Scored]) -> dict[str, float]:
    results = results_of(answer for answer in scored if answer.verdict is not None)
    parts = {f"held_out/{name.removeprefix('level ')}": some for name, some in results.by("set").items()}
    return {
        name: sum(unit.right for unit in some) / len(some)
        for name, some in {"held_out": results, **parts}.items()
        if some
    }


def prompt_of(item: Item) -> Prompt:
    """The prompt of an item."""
    image = task_of(item).input_image(item)
    columns = {"item": item, "answer": item.answer, "level": item.level}
    return Prompt(item.id, item.prompt, () if image is None else (image,), columns)


def read_prompts(
    path: str, images: str | None = None, most: int | None = None, rewarded: bool = True, held_out: bool = False
) -> list[Prompt]:
    """Rows with `prompt`, and `images` or `input_image`; all their other keys are columns for rewards.

    A row with the facts of an item of ours has it as the column `item`. A .txt file has a prompt a line. The first
    `most` rows (None: all). rewarded: else images have any name of an edit's inputs, or `image`, and no other key has;
    rows of a folder, and those without `prompt`, are read as in training. held_out: of a folder with splits those that
    are not trained on.

    Raises:
        UserError: a missing file; a bad row, by its file and number. Unreadable: a text that is not UTF-8.
    """
    if Path(path).suffix.lower() == ".txt" and Path(path).is_file():
        return [Prompt(f"line{number}", line.strip()) for number, line in itertools.islice(read_lines(path), most)]
    rows = open_rows(path, Path(images) if images is not None else None, held_out)
    prompts = []
    for index in range(len(rows))[:most]:
        try:
            prompts.append(_prompt(rows[index], index, rewarded, Path(path).is_dir()))
        except BadRow as error:
            hint = error.hint or "Every row needs a prompt, and images that can be read."
            raise UserError(f"{rows.where(index)}: {error}", hint) from None
    return prompts


def _prompt(row: Row, index: int, rewarded: bool, of_folder: bool) -> Prompt:
    values: dict[str, Any] = dict(row.values)
    item = isinstance(values.get("facts"), dict) and "task" in values  # its `image` is the answer
    if not rewarded and values.keys() & {"messages", "conversations"}:
        hint = "Write what is to be drawn to a .txt file, a prompt a line; held_out_loss.path scores conversations."
        raise BadRow("is a conversation, which has no prompt", hint)
    drawn = {"image", "images", "file_name", "target_image"} & values.keys()
    if drawn and not rewarded and not item and (of_folder or missing(values.get("prompt"))):
        example = inferred.parse(row, random.Random(0))  # as it is trained on: its target is not shown
        return Prompt(str(values.get("id", f"row{index}")), example.prompt or row.text("prompt"), example.images)
    shown = ("images", "input_image") if rewarded else edit.INPUTS if item else (*edit.INPUTS, "image")
    pictures = row.images(*shown)
    if not rewarded:
        row.read.update(edit.DRAWN, ["image"])
        row.expect_all_read()
    columns = {key: value for key, value in values.items() if key not in ("id", "prompt", *shown)}
    if taken := columns.keys() & {"prompts", "completions", "place", "item"}:
        raise BadRow(f"has the column {min(taken)}, which rewards are given otherwise: rename it")
    if item:
        try:
            columns["item"] = Item.from_dict(values)
        except (KeyError, TypeError, ValueError) as error:
            raise BadRow(f"is no item of ours: {error}") from None
    return Prompt(str(values.get("id", f"row{index}")), row.text("prompt"), pictures, columns)


def validation_prompts(
    task: Task, levels: Sequence[int], n: int, split: str, seed: int, batch: int, think: bool = False
) -> ValidationPrompts:
    """`n` prompts (for mapping of pairs: questions) of each level.

    Raises:
        UserError: the task has no such level, or too few prompts.
    """
    check_levels(task, levels, "held_out.levels")
    items = {f"level {level}": generate(task, n, level, split, seed)[:n] for level in levels}
    return ValidationPrompts(items, seed, batch, think)


def check_levels(task: Task, levels: Sequence[int], key: str) -> None:
    """Raises UserError for a level that the task lacks."""
    for level in levels:
        if level not in task.levels:
            raise UserError(
                f"{key}: {task.name} has no level {level}", f"Choose of {', '.join(map(str, task.levels))}."
            )


def generate(task: Task, n: int, level: int, split: str, seed: int) -> list[Item]:
    """Different items of a split. Raises UserError where there are too few."""
    try:
        return task.generate(n, level, split, derive_seed("grpo", split, seed))
    except DataError as error:
        raise UserError(str(error)) from None


def intervals(folder: Path) -> dict[str, dict[str, Any]]:
    """Of the first and the last validation below `folder`: "before" and "after" -> "level 4", or the name of a
    reward -> estimate. Nothing where nothing scores."""
    folders = finished(folder / FOLDER)
    if not folders:
        return {}
    ends = {"before": folders[0], "after": folders[-1]}
    by_end = {when: estimates(read_validation(end, images=False)) for when, end in ends.items()}
    return {when: {name: answer.to_dict() for name, answer in some.items()} for when, some in by_end.items() if some}


def table(success: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """`intervals` as columns and rows for the console."""
    rows = [[when, *(str(Estimate.from_dict(level)) for level in levels.values())] for when, levels in success.items()]
    return ["", *success["before"]], rows
