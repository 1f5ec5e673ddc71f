"""Curricula: the mixture of sources of each update, and the state that is kept in checkpoints.

A mixture maps source names to shares: a share of 1.0 is `rows` examples of the batch (Updates.rows).
Shares need not sum to 1: replay of base rows comes on top of them.

Left out on purpose: weighting single examples by difficulty (no paper that we follow does it).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uni_train.core.errors import UsageError

Mixture = dict[str, float]


class Curriculum:
    """What `fit_supervised` asks of a schedule; one whose mixtures are fixed from the start needs `mixture` alone.

    check_every: updates between two calls of `observe`, or None for a schedule whose mixtures are fixed from the
        start. Where it is a number, the batch of an update can only be made once all earlier updates are observed.
    """

    check_every: int | None = None

    def mixture(self, step: int) -> Mixture:
        """The shares of update `step` (from 0); the same answer every time it is asked, once `step` is reached."""
        raise NotImplementedError

    def observe(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take note of validation metrics after `step` updates."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""


class Constant(Curriculum):
    """The same mixture at every update."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.shares = _checked(shares)

    def mixture(self, step: int) -> Mixture:
        return dict(self.shares)


class Ramp(Curriculum):
    """A mixture that moves linearly, over `updates` updates, through `points` at equal distances.

    With two points p and q, update s of n has the shares (1 - s/(n-1)) p + s/(n-1) q. With one point per level
    ({m1: 1}, {m2: 1}, {m3: 1}) the batch moves from the easiest level to the hardest.
    """

    def __init__(self, points: Sequence[Mapping[str, float]], updates: int) -> None:
        if len(points) < 2:
            raise UsageError("a ramp needs at least two mixtures, a first and a last one")
        if updates < 1:
            raise UsageError(f"updates={updates}: must be at least 1")
        self.points = [_checked(point) for point in points]
        self.updates = updates

    def mixture(self, step: int) -> Mixture:
        last = len(self.points) - 1
        position = last * min(max(step / max(self.updates - 1, 1), 0.0), 1.0)
        index = min(math.floor(position), last - 1)
        weight = position - index
        low, high = self.points[index], self.points[index + 1]
        return {name: (1 - weight) * low.get(name, 0.0) + weight * high.get(name, 0.0) for name in {**low, **high}}


@dataclass(frozen=True)
class Level:
    """A level of a `Threshold` curriculum, left when `metric` reaches `threshold` or after `max_updates`.

    The last level of a curriculum is never left.
    """

    mixture: Mapping[str, float]
    metric: str
    threshold: float
    max_updates: int


class Threshold(Curriculum):
    """Levels that are left when the model has learnt them.

    Every `check_every` updates the trainer evaluates and calls `observe`. The updates at which levels began are the
    state, so mixtures of past updates stay answerable after a resume.
    """

    def __init__(self, levels: Sequence[Level], check_every: int) -> None:
        if not levels:
            raise UsageError("a threshold curriculum needs at least one level")
        if check_every < 1:
            raise UsageError(f"check_every={check_every}: must be at least 1")
        for level in levels:
            _checked(level.mixture)
            if level.max_updates < 1:
                raise UsageError(f"max_updates={level.max_updates}: must be at least 1")
        self.levels = list(levels)
        self.check_every = check_every
        self._starts = [0]

    def level(self, step: int) -> int:
        """The index of the level that update `step` belongs to."""
        return bisect.bisect_right(self._starts_until(step), step) - 1

    def mixture(self, step: int) -> Mixture:
        return dict(self.levels[self.level(step)].mixture)

    def observe(self, step: int, metrics: Mapping[str, float]) -> None:
        self._starts = self._starts_until(step)
        current = self.level(step)
        level = self.levels[current]
        if level.metric not in metrics:
            known = ", ".join(sorted(metrics)) or "none"
            raise UsageError(f"the curriculum waits for the metric {level.metric}; the evaluation gave: {known}")
        if metrics[level.metric] >= level.threshold and current < len(self.levels) - 1 and step > self._starts[-1]:
            self._starts.append(step)

    def state_dict(self) -> dict[str, Any]:
        return {"starts": list(self._starts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        starts = [int(start) for start in state["starts"]]
        if len(starts) > len(self.levels):
            raise UsageError(f"the checkpoint is at level {len(starts)}, the curriculum has {len(self.levels)}")
        self._starts = starts

    def _starts_until(self, step: int) -> list[int]:
        """The known starts, and those that follow by `step` because a level's updates are spent."""
        starts = list(self._starts)
        while len(starts) < len(self.levels) and starts[-1] + self.levels[len(starts) - 1].max_updates <= step:
            starts.append(starts[-1] + self.levels[len(starts) - 1].max_updates)
        return starts


def _checked(shares: Mapping[str, float]) -> Mixture:
    if not shares or any(not share >= 0 or math.isinf(share) for share in shares.values()) or not sum(shares.values()):
        raise UsageError(f"mixture {dict(shares)}: needs shares of at least 0, one of them above 0")
    return dict(shares)
