"""Rewards from the exact verifiers of data_gen: proved, so that there is nothing to be fooled but the verifier itself.

Rows need the column `item`; to those without one they do not apply. An image that nobody can read is worth 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from uni_train.core.errors import UserError
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item, Verdict
from uni_train.rewards.contract import Judged
from uni_train.rewards.registry import reward


def _judged(
    value: Callable[[Verdict], float],
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    *,
    item: Sequence[Item | None] | None = None,
    verdict: Sequence[object] = (),
    **_: object,
) -> list[Judged | None]:
    """verdict: those that another reward has brought already; else the images are verified now. Raises UserError where
    no prompt is of a task."""
    if item is None or not any(item):
        raise UserError(
            "the verifier is the reward, but the prompts are of no task that it knows",
            "Use prompts.task, a file that `uni_train data make` has written, or another reward.",
        )
    known = verdict if len(verdict) == len(completions) else [None] * len(completions)
    judged: list[Judged | None] = []
    for row, image, known_verdict in zip(item, completions, known, strict=True):
        if row is None:
            judged.append(None)
            continue
        found = known_verdict if isinstance(known_verdict, Verdict) else task_of(row).verify(row, image)
        judged.append(Judged(value(found), found))
    return judged


def _share(verdict: Verdict) -> float:
    if verdict.score is not None:
        return verdict.score
    return sum(check.status == "pass" for check in verdict.checks) / max(len(verdict.checks), 1)


verified = reward("verifier")(partial(_judged, lambda verdict: float(verdict.passed)))
"""1 where every check of the task passes, else 0."""
dense = reward("verifier_dense")(partial(_judged, _share))
"""How nearly right, in [0, 1]: the verdict's score where the task gives one (mazes), else the share of checks that
pass."""
