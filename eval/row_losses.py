"""Logged losses of single rows (uni_train/stages/held_out_loss.py), by what of a row is learned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from uni_train.eval.statistics import Estimate, mean_over_seeds


class Difference(Estimate):
    """A change or a gap, which has its sign wherever its interval lies."""

    signed = True


def losses_of(line: Mapping[str, Any], rows: str) -> dict[str, list[float]]:
    """Part (text, image at each level, their mean) -> a loss a row, of rows that have it. rows: held_out, train."""
    ce, mse = line["rows"][rows]["ce"], [row for row in line["rows"][rows]["mse"] if not math.isnan(row[0])]
    by_level = {f"image, t = {level:g}": [row[i] for row in mse] for i, level in enumerate(line["levels"])}
    parts = {"text": [loss for loss in ce if not math.isnan(loss)], **by_level, "image, mean": [*map(fmean, mse)]}
    return {part: losses for part, losses in parts.items() if losses}


def mean_loss(losses: Sequence[float]) -> Estimate:
    """Over rows, with Student's t."""
    return mean_over_seeds(losses, (0.0, math.inf)) if losses else Estimate(None, 0, 0.0, math.inf)


def changed(before: Sequence[float], after: Sequence[float]) -> Difference:
    """The mean change, row by row."""
    mean = mean_over_seeds([b - a for a, b in zip(before, after, strict=True)], (-math.inf, math.inf))
    return Difference(mean.value, mean.n, mean.low, mean.high)
