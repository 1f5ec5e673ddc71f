"""Numbers that carry their n and their 95 % interval.

Left out on purpose: formulas of our own. Wilson and Newcombe intervals, exact McNemar and cluster-robust means come
from statsmodels, the t interval from scipy; both are imported inside the functions because they take seconds to load.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, the number of units it was measured on, and its interval.

    `value` is None when there was nothing to measure (n = 0: the recall of a filter where no sample was right); the
    interval then spans everything that is possible. For proportions everything lies in [0, 1].
    """

    value: float | None
    n: int
    low: float
    high: float

    def to_dict(self) -> dict[str, float | int | None]:
        """For JSON, which knows no infinity: an open end becomes null."""
        low = self.low if math.isfinite(self.low) else None
        high = self.high if math.isfinite(self.high) else None
        return {"value": self.value, "n": self.n, "low": low, "high": high}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Estimate:
        value, low, high = raw["value"], raw["low"], raw["high"]
        return cls(
            None if value is None else float(value),
            int(raw["n"]),
            -math.inf if low is None else float(low),
            math.inf if high is None else float(high),
        )

    def __str__(self) -> str:
        value = "none" if self.value is None else f"{self.value:.2f}"
        return f"{value} [{self.low:.2f}, {self.high:.2f}] n={self.n}"


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two ways of answering the same units: the 2 x 2 table, `second - first`, and McNemar's exact p value."""

    both: int
    only_first: int
    only_second: int
    neither: int
    difference: Estimate
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        counts = {"both": self.both, "only_first": self.only_first, "only_second": self.only_second}
        return counts | {"neither": self.neither, "difference": self.difference.to_dict(), "p_value": self.p_value}


def proportion(successes: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """`successes` of `n` independent units, with Wilson's score interval (E. B. Wilson, 1927).

    Raises ValueError unless 0 <= successes <= n. n = 0 gives no value and the interval [0, 1].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, got {successes} of {n}")
    if n == 0:
        return Estimate(None, 0, 0.0, 1.0)
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, n, alpha=1 - confidence, method="wilson")
    value = successes / n
    # At 0 of n and n of n the interval ends at the value itself, but for rounding.
    return Estimate(value, n, *_within(min(float(low), value), max(float(high), value), 0.0, 1.0))


def mean_over_seeds(
    values: Sequence[float], bounds: tuple[float, float] = (0.0, 1.0), confidence: float = CONFIDENCE
) -> Estimate:
    """The mean of one number per seed; n is the number of seeds.

    The interval is Student's t over the seeds, clipped to `bounds`.

    One seed says nothing about the spread: its interval is all of `bounds` (scores by default; (-inf, inf) for other
    quantities). Raises ValueError without values.
    """
    if not values:
        raise ValueError("a mean over seeds needs at least one seed")
    n, mean = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Estimate(mean, 1, *bounds)
    from scipy.stats import sem, t

    error = float(sem(values))
    # A spread of zero makes scipy's interval nan; the honest reading of equal seeds is an interval of width zero.
    low, high = t.interval(confidence, n - 1, loc=mean, scale=error) if error > 0 else (mean, mean)
    return Estimate(mean, n, *_within(float(low), float(high), *bounds))


def clustered_mean(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    cells: Sequence[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean of 0/1 outcomes that come in clusters (several draws of one item; one pair in two settings).

    With `cells` it is the unweighted mean of the cell means, the papers' "average over sets", so that a larger set
    does not count more. The interval is cluster-robust with t quantiles (statsmodels OLS on cell indicators,
    `cov_type="cluster"`), clipped to [0, 1]; n is the number of clusters. Where the outcomes do not vary at all, or
    there is one cluster, that
    interval would be empty or undefined: Wilson's over the clusters is used instead.
    """
    import numpy as np

    cells = [0] * len(values) if cells is None else cells
    if not len(values) == len(clusters) == len(cells):
        raise ValueError("values, clusters and cells must have the same length")
    cell_of, group_of = _codes(cells), _codes(clusters)
    n = max(group_of, default=-1) + 1
    if n == 0:
        return proportion(0, 0)
    outcome = np.asarray(values, dtype=float)
    indicator = np.eye(max(cell_of) + 1)[cell_of]
    mean = float(np.mean(indicator.T @ outcome / indicator.sum(axis=0)))
    if n > 1 and np.ptp(outcome) > 0:
        from statsmodels.regression.linear_model import OLS

        fit = OLS(outcome, indicator).fit(cov_type="cluster", cov_kwds={"groups": np.asarray(group_of)}, use_t=True)
        test = fit.t_test(np.full((1, indicator.shape[1]), 1 / indicator.shape[1]))
        low, high = (float(x) for x in test.conf_int(alpha=1 - confidence)[0])
        if math.isfinite(low) and math.isfinite(high) and high > low:
            return Estimate(mean, n, *_within(low, high, 0.0, 1.0))
    fallback = proportion(round(mean * n), n, confidence)
    return Estimate(mean, n, min(fallback.low, mean), max(fallback.high, mean))


def difference(
    first_successes: int, first_n: int, second_successes: int, second_n: int, confidence: float = CONFIDENCE
) -> Estimate:
    """`second - first` of two independent proportions, with Newcombe's hybrid score interval (1998, method 10).

    Lies in [-1, 1]; n is the smaller sample. An empty sample gives no value and the interval [-1, 1].
    """
    first, second = proportion(first_successes, first_n), proportion(second_successes, second_n)
    if first.value is None or second.value is None:
        return Estimate(None, 0, -1.0, 1.0)
    from statsmodels.stats.proportion import confint_proportions_2indep

    low, high = confint_proportions_2indep(
        second_successes, second_n, first_successes, first_n, method="newcomb", compare="diff", alpha=1 - confidence
    )
    return Estimate(second.value - first.value, min(first_n, second_n), *_within(float(low), float(high), -1.0, 1.0))


def mcnemar_exact(first: Sequence[bool], second: Sequence[bool]) -> PairedComparison:
    """Compare two ways of answering the same units, `first[i]` beside `second[i]` (McNemar's exact binomial test).

    The interval of the difference is Newcombe's for independent samples, which ignores the pairing: where the two
    agree more often than chance, as two models on one benchmark do, it is too wide rather than too narrow. Raises
    ValueError when the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"paired outcomes need equal lengths, got {len(first)} and {len(second)}")
    both = sum(a and b for a, b in zip(first, second, strict=True))
    neither = sum(not a and not b for a, b in zip(first, second, strict=True))
    only_first, only_second = sum(first) - both, sum(second) - both
    p_value = 1.0
    if only_first + only_second:
        from statsmodels.stats.contingency_tables import mcnemar

        p_value = float(mcnemar([[both, only_first], [only_second, neither]], exact=True).pvalue)
    gap = difference(sum(first), len(first), sum(second), len(second))
    return PairedComparison(both, only_first, only_second, neither, gap, min(1.0, p_value))


def _codes(labels: Sequence[Hashable]) -> list[int]:
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(label, len(seen)) for label in labels]


def _within(low: float, high: float, least: float, most: float) -> tuple[float, float]:
    return min(max(low, least), most), min(max(high, least), most)
