"""Rewards from the exact verifiers of data_gen: proved, so that there is nothing to be fooled but the verifier itself.

Rows need the column `item`; to those without one they do not apply. A picture that nobody can read is worth 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_gen.registry import task_of
from data_gen.task import Item, Verdict
from uni_train.errors import UserError


def verified(
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    *,
    item: Sequence[Item | None] | None = None,
    **_: object,
) -> list[float | None]:
    """1 where every check of the task passes, else 0. Raises UserError where no prompt is of a task."""
    return [None if verdict is None else float(verdict.passed) for verdict in _verdicts(item, completions)]


def dense(
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    *,
    item: Sequence[Item | None] | None = None,
    **_: object,
) -> list[float | None]:
    """How nearly right, in [0, 1]: the verdict's score where the task gives one (mazes), else the share of checks that
    pass. Raises UserError where no prompt is of a task."""
    return [None if verdict is None else _share(verdict) for verdict in _verdicts(item, completions)]


def _verdicts(items: Sequence[Item | None] | None, images: Sequence[np.ndarray]) -> list[Verdict | None]:
    if items is None or not any(items):
        raise UserError(
            "the verifier is the reward, but the prompts are of no task that it knows",
            "Use prompts.task, a file that `uni_train data make` has written, or another reward.",
        )
    return [
        None if item is None else task_of(item).verify(item, image) for item, image in zip(items, images, strict=True)
    ]


def _share(verdict: Verdict) -> float:
    if verdict.score is not None:
        return verdict.score
    return sum(check.status == "pass" for check in verdict.checks) / max(len(verdict.checks), 1)
