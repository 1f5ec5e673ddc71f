"""Rewards from the exact verifiers of data_gen: proved, so that there is nothing to be fooled but the verifier itself.

Rows need the column `item`; to those without one they do not apply. An image that nobody can read is worth 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uni_train.core.errors import UserError
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item, Verdict
from uni_train.rewards.contract import Judged
from uni_train.rewards.registry import reward


@reward("verifier")
def verified(
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    *,
    item: Sequence[Item | None] | None = None,
    verdict: Sequence[object] = (),
    **_: object,
) -> list[Judged | None]:
    """1 where every check of the task passes, else 0. Raises UserError where no prompt is of a task."""
    return _judged(lambda judged: float(judged.passed), item, completions, verdict)


@reward("verifier_dense")
def dense(
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    *,
    item: Sequence[Item | None] | None = None,
    verdict: Sequence[object] = (),
    **_: object,
) -> list[Judged | None]:
    """How nearly right, in [0, 1]: the verdict's score where the task gives one (mazes), else the share of checks that
    pass. Raises UserError where no prompt is of a task."""
    return _judged(_share, item, completions, verdict)


def _judged(
    value: Callable[[Verdict], float],
    items: Sequence[Item | None] | None,
    images: Sequence[np.ndarray],
    verdicts: Sequence[object],
) -> list[Judged | None]:
    """verdicts: those that another reward has brought already; else the images are verified now."""
    if items is None or not any(items):
        raise UserError(
            "the verifier is the reward, but the prompts are of no task that it knows",
            "Use prompts.task, a file that `uni_train data make` has written, or another reward.",
        )
    known = verdicts if len(verdicts) == len(images) else [None] * len(images)
    judged: list[Judged | None] = []
    for item, image, known_verdict in zip(items, images, known, strict=True):
        if item is None:
            judged.append(None)
            continue
        verdict = known_verdict if isinstance(known_verdict, Verdict) else task_of(item).verify(item, image)
        judged.append(Judged(value(verdict), verdict))
    return judged


def _share(verdict: Verdict) -> float:
    if verdict.score is not None:
        return verdict.score
    return sum(check.status == "pass" for check in verdict.checks) / max(len(verdict.checks), 1)
