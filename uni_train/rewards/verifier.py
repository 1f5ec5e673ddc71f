"""Rewards from the exact verifiers of data_gen: proved, so that there is nothing to be fooled but the verifier itself.

Rows need the column `item`. A picture that nobody can read is worth 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_gen.task import Item, Verdict, task_of


def verified(
    prompts: Sequence[str], completions: Sequence[np.ndarray], *, item: Sequence[Item], **_: object
) -> list[float]:
    """1 where every check of the task passes, else 0."""
    return [float(verdict.passed) for verdict in _verdicts(item, completions)]


def dense(
    prompts: Sequence[str], completions: Sequence[np.ndarray], *, item: Sequence[Item], **_: object
) -> list[float]:
    """How nearly right, in [0, 1]: the verdict's score where the task gives one (mazes), else the share of checks that
    pass."""
    return [_share(verdict) for verdict in _verdicts(item, completions)]


def _verdicts(items: Sequence[Item], images: Sequence[np.ndarray]) -> list[Verdict]:
    return [task_of(item).verify(item, image) for item, image in zip(items, images, strict=True)]


def _share(verdict: Verdict) -> float:
    if verdict.score is not None:
        return verdict.score
    return sum(check.status == "pass" for check in verdict.checks) / max(len(verdict.checks), 1)
