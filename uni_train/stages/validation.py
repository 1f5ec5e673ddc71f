"""Success on a task's prompts that are not trained on, by the exact verifier, while a model is trained.

Every validation is a line of held_out.jsonl (training.callbacks.Validation) and a folder `held_out/step=00000100` with
what each prompt came to and the first images of each level (eval/groups.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Item, Task, Verdict
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.errors import UserError
from uni_train.eval.groups import Group, Member, estimates, finished, read_facts, write_groups
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.pictures import encode_png
from uni_train.stages.gallery import log_groups
from uni_train.stages.work import in_batches

FOLDER = "held_out"
_SHOWN_PROMPTS = 6  # of each level
_SHOWN_ALL = 24


@dataclass(frozen=True)
class ValidationPrompts:
    """Held-out prompts, independent of the run's seed.

    items: level -> its prompts. seed: of the drawing. batch: images drawn together. think: before it draws.
    """

    task: Task
    items: Mapping[int, Sequence[Item]]
    split: str
    seed: int
    batch: int
    think: bool = False

    def evaluate(
        self, model: UnifiedModel, step: int, folder: Path, logger: Any = None, ranks: Ranks = ALONE
    ) -> dict[str, float]:
        """{"held_out": share of all prompts that the verifier passes, "held_out/4": the share on level 4, ...}

        Verdicts and the first images are written to `folder`/held_out, images to `logger` (W&B) too. All ranks call it,
        share the drawing and get the same scores.

        Raises:
            OSError: the disk is full.
        """
        scores: dict[str, float] = {}
        levels: dict[str, Any] = {}
        shown: list[Group] = []
        most = min(_SHOWN_PROMPTS, max(1, _SHOWN_ALL // len(self.items)))
        drawn = self._drawn(model, most, ranks)
        for level, items in self.items.items():
            verdicts = [verdict for verdict, _ in drawn[level]]
            scores[f"held_out/{level}"] = sum(verdict.passed for verdict in verdicts) / len(verdicts)
            levels[str(level)] = {
                "n": len(verdicts),
                "passed": "".join("1" if verdict.passed else "0" for verdict in verdicts),
                "checks": _checks(verdicts),
                **({"pairs": _pairs(items)} if self.task.items_per_draw > 1 else {}),
            }
            for item, (verdict, picture) in list(zip(items, drawn[level], strict=True))[:most]:
                given = self.task.input_image(item)
                inputs = () if given is None else (encode_png(given),)
                members = [Member(picture, verdict)]
                shown.append(Group(item.id, item.prompt, members, inputs, item.level, item.answer))
        if ranks.is_main:
            about = {"step": step, "task": self.task.name, "split": self.split, "levels": levels}
            write_groups(folder / FOLDER / f"step={step:08d}", shown, **about)
        log_groups(logger, FOLDER, shown, step)
        right = sum(one["passed"].count("1") for one in levels.values())
        return {"held_out": right / sum(one["n"] for one in levels.values()), **scores}

    def _drawn(self, model: UnifiedModel, most: int, ranks: Ranks) -> dict[int, list[tuple[Verdict, bytes]]]:
        """Level -> its prompts' verdicts, with the PNG of the first `most` (b"" of the others)."""
        batches = [
            (level, index, batch)
            for level, items in self.items.items()
            for index, batch in in_batches(items, self.batch)
        ]
        mine: dict[int, list[tuple[Verdict, bytes]]] = {}
        for number in range(ranks.rank, len(batches), ranks.world_size):
            _, index, batch = batches[number]
            requests = [self._request(item) for item in batch]
            images = model.think_and_draw(requests)[1] if self.think else model.draw(requests)
            note()
            mine[number] = [
                (self.task.verify(item, image), encode_png(image) if place < most else b"")
                for place, (item, image) in enumerate(zip(batch, images, strict=True), start=index * self.batch)
            ]
        by_level: dict[int, list[tuple[Verdict, bytes]]] = {level: [] for level in self.items}
        by_batch = {number: results for part in ranks.gather(mine) for number, results in part.items()}
        for number, (level, *_) in enumerate(batches):
            by_level[level] += by_batch[number]
        return by_level

    def _request(self, item: Item) -> Request:
        given = self.task.input_image(item)
        return Request(
            item.id, item.prompt, () if given is None else (given,), seed=derive_seed("held out", self.seed, item.id)
        )


def validation_prompts(
    task: Task, levels: Sequence[int], n: int, split: str, seed: int, batch: int, think: bool = False
) -> ValidationPrompts:
    """`n` prompts (for mapping of pairs: questions) of each level.

    Raises:
        UserError: the task has no such level, or too few prompts.
    """
    check_levels(task, levels, "held_out.levels")
    items = {level: generate(task, n, level, split, seed)[:n] for level in levels}
    return ValidationPrompts(task, items, split, seed, batch, think)


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
        raise UserError(str(error), "Ask for fewer, or for other levels.") from None


def intervals(folder: Path) -> dict[str, dict[str, Any]]:
    """Of the first and the last validation below `folder`: "before" and "after" -> "level 4", or the name of a
    reward -> estimate."""
    folders = finished(folder / FOLDER)
    if not folders:
        return {}
    ends = {when: read_facts(one) for when, one in (("before", folders[0]), ("after", folders[-1]))}
    return {when: {name: one.to_dict() for name, one in estimates(facts).items()} for when, facts in ends.items()}


def table(success: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """`intervals` as columns and rows for the console."""
    rows = [[when, *(_shown(one) for one in levels.values())] for when, levels in success.items()]
    return ["", *success["before"]], rows


def _checks(verdicts: Sequence[Verdict]) -> dict[str, list[str | None]]:
    """Name of a check -> what it came to for each prompt, None where it was not made."""
    by_prompt = [{check.name: check.status for check in verdict.checks} for verdict in verdicts]
    return {name: [checks.get(name) for checks in by_prompt] for name in dict.fromkeys(itertools.chain(*by_prompt))}


def _pairs(items: Sequence[Item]) -> list[int]:
    """The number of each prompt's pair."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(item.pair or item.id, len(numbers)) for item in items]


def _shown(estimate: Mapping[str, Any]) -> str:
    return f"{estimate['value']:.2f} [{estimate['low']:.2f}, {estimate['high']:.2f}] n={estimate['n']}"
