"""What a program decides of the images of a case, so that no judge is asked.

A case with an item of data_gen has the item's verifier. A published maze has no grid in its record: it is read out of
its input image. It is used only if the image ground truth passes the verifier and a copy of the input fails. Published
jigsaws, sudokus and plots are compared with their ground truth (`solutions`). The judge decides everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from uni_train.data_gen.puzzle import Puzzle
from uni_train.data_gen.registry import get_task, task_of
from uni_train.data_gen.task import Check, Item, Verdict
from uni_train.eval.benchmark import Case
from uni_train.eval.benchmarks.vigor import solutions
from uni_train.eval.benchmarks.vigor.cases import MAZE
from uni_train.eval.benchmarks.vigor.prompts import (
    BACKGROUND,
    DIMENSIONS,
    PROCESS,
    QUALITY,
    REASONING,
    RULE,
    verdict_of,
)
from uni_train.eval.images import bytes_of
from uni_train.models.pictures import decode_picture

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Program:
    """What is known of a case's images, uint8 [H, W, 3].

    result: of the final image; None where it cannot be read. process: of all frames; None: the judge's. dimensions:
    those that an answer has.
    """

    result: Callable[[np.ndarray], Verdict | None]
    process: Callable[[Sequence[np.ndarray]], Verdict] | None = None
    dimensions: tuple[str, ...] = DIMENSIONS


def program_of(case: Case) -> Program | None:
    """The program that decides a case; None where one might be wrong about it."""
    item = Item.from_dict(case.facts["item"]) if case.facts["item"] else read_maze(case)
    if item is None:
        result = solutions.reader_of(case)
        return None if result is None else Program(result)
    task = task_of(item)
    if item.task == "maze":
        return Program(partial(task.verify, item), partial(maze_process, item))
    if isinstance(task, Puzzle):
        return Program(partial(task.verify, item), partial(puzzle_process, task, item))
    return Program(partial(sprites_result, item), dimensions=(RULE, REASONING))  # no input with a background to keep


def sprites_result(item: Item, image: np.ndarray) -> Verdict:
    """Object (rule), and object and count (reasoning), of drawn sprites."""
    verdict = task_of(item).verify(item, image)
    if verdict.status == "unreadable":
        return Verdict(tuple(Check(name, "unreadable", verdict.reason) for name in (RULE, REASONING)))
    drawn = next(check for check in verdict.checks if check.name == "object")
    return Verdict((Check(RULE, drawn.status, drawn.reason), Check(REASONING, verdict.status, verdict.reason)))


def maze_process(item: Item, frames: Sequence[np.ndarray]) -> Verdict:
    """Shares of the frames, as the templates of process define them.

    A frame is beneficial if its score is above that of the one before, or if it keeps a solution.
    """
    verdicts = [task_of(item).verify(item, frame) for frame in frames]
    shares = _shares(verdicts, (BACKGROUND, RULE, QUALITY))
    scores = [verdict.score or 0.0 for verdict in verdicts]
    before = [0.0, *scores]
    shares[REASONING] = sum(now > then or now == 1 for then, now in zip(before, scores, strict=False)) / len(frames)
    return verdict_of(shares, PROCESS)


def puzzle_process(task: Puzzle, item: Item, frames: Sequence[np.ndarray]) -> Verdict:
    """The same of a puzzle, without visual quality: a program reads what a frame shows, not how well."""
    shares = _shares([task.verify(item, frame) for frame in frames], (BACKGROUND, RULE))
    return verdict_of(shares | {REASONING: sum(task.leads_on(item, frames)) / len(frames)}, PROCESS)


def _shares(verdicts: Sequence[Verdict], names: Sequence[str]) -> dict[str, float]:
    """Check -> the share of frames that pass it."""
    return {
        name: sum(check.status == "pass" for verdict in verdicts for check in verdict.checks if check.name == name)
        / len(verdicts)
        for name in names
    }


def read_maze(case: Case) -> Item | None:
    """The maze of a published record, or None where a program might be wrong about it."""
    if case.set != MAZE or not case.images or not case.references:
        return None
    shown, solved = (decode_picture(bytes_of(image), case.id) for image in (*case.images, *case.references))
    return get_task("maze").published_item(case.id, case.prompt, shown, solved)  # type: ignore[attr-defined, no-any-return]
