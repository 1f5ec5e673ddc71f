"""Estimates with n and a 95 % interval, paired comparisons, and detectable differences.

Left out on purpose: formulas of our own, but for Newcombe's interval for paired proportions, which no library here has.
Wilson's and Newcombe's other interval, exact McNemar, cluster-robust means and power come from statsmodels, the t
interval and binomial tails from scipy; both are imported inside the functions because they take seconds to load.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from uni_train.data_gen.seeds import derive_seed

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, the number of units it was measured on, and its interval.

    `value` is None when there was nothing to measure (n = 0: the recall of a filter where no sample was right); the
    interval then spans everything that is possible. For proportions everything lies in [0, 1]. distinct: how many of
    the n units differ, where some repeat each other (an expression asked twice); None where all differ.
    """

    value: float | None
    n: int
    low: float
    high: float
    distinct: int | None = None

    def to_dict(self) -> dict[str, float | int | None]:
        """For JSON, which knows no infinity: an open end becomes null. `distinct` is there where units repeat."""
        low = self.low if math.isfinite(self.low) else None
        high = self.high if math.isfinite(self.high) else None
        repeats = {} if self.distinct is None else {"distinct": self.distinct}
        return {"value": self.value, "n": self.n, "low": low, "high": high, **repeats}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Estimate:
        value, low, high = raw["value"], raw["low"], raw["high"]
        return cls(
            None if value is None else float(value),
            int(raw["n"]),
            -math.inf if low is None else float(low),
            math.inf if high is None else float(high),
            raw.get("distinct"),
        )

    def __str__(self) -> str:
        value = "none" if self.value is None else f"{self.value:.2f}"
        repeats = "" if self.distinct is None else f" ({self.distinct} distinct)"
        return f"{value} [{self.low:.2f}, {self.high:.2f}] n={self.n}{repeats}"


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


def proportion(successes: int, n: int) -> Estimate:
    """`successes` of `n` independent units, with Wilson's score interval (E. B. Wilson, 1927).

    Raises ValueError unless 0 <= successes <= n. n = 0 gives no value and the interval [0, 1].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, got {successes} of {n}")
    if n == 0:
        return Estimate(None, 0, 0.0, 1.0)
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, n, alpha=1 - CONFIDENCE, method="wilson")
    value = successes / n
    # At 0 of n and n of n the interval ends at the value itself, but for rounding.
    return Estimate(value, n, *_within(min(float(low), value), max(float(high), value), 0.0, 1.0))


def mean_over_seeds(values: Sequence[float], bounds: tuple[float, float] = (0.0, 1.0)) -> Estimate:
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
    low, high = t.interval(CONFIDENCE, n - 1, loc=mean, scale=error) if error > 0 else (mean, mean)
    return Estimate(mean, n, *_within(float(low), float(high), *bounds))


def clustered_mean(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    cells: Sequence[Hashable] | None = None,
) -> Estimate:
    """The mean of outcomes in [0, 1] that come in clusters (several draws of one item; one pair in two settings).

    With `cells` it is the unweighted mean of the cell means, the papers' "average over sets", so that a larger set
    does not count more. The interval is cluster-robust with t quantiles (statsmodels OLS on cell indicators,
    `cov_type="cluster"`), clipped to [0, 1]; n is the number of clusters. Where the outcomes do not vary at all, or
    there is one cluster, that interval would be empty or undefined: Wilson's over the clusters is used instead.
    """
    if not len(values) and not len(clusters):
        return proportion(0, 0)
    mean, n, robust = _mean_of_cells(values, clusters, cells)
    if robust is not None:
        return Estimate(mean, n, *_within(robust[0], robust[1], 0.0, 1.0))
    fallback = proportion(round(mean * n), n)
    return Estimate(mean, n, min(fallback.low, mean), max(fallback.high, mean))


def share(
    outcomes: Sequence[bool],
    units: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    cells: Sequence[Hashable] | None = None,
) -> Estimate:
    """The share of right `outcomes`, outcome i being one of unit i; n is the number of different units.

    clusters: what units share that repeat each other (None: each is its own). Wilson's interval where every outcome is
    a cluster of its own, else, and with `cells`, cluster-robust as in `clustered_mean`; with fewer clusters than units,
    `distinct` is their number. Raises ValueError when the lengths differ.
    """
    clusters = units if clusters is None else clusters
    if not len(outcomes) == len(units) == len(clusters):
        raise ValueError("outcomes, units and clusters must have the same length")
    n, distinct = len(set(units)), len(set(clusters))
    if cells is None and distinct == len(outcomes):
        return proportion(sum(outcomes), len(outcomes))
    estimate = clustered_mean([float(ok) for ok in outcomes], clusters, cells)
    return replace(estimate, n=n, distinct=distinct if distinct < n else None)


def shares(names: Iterable[str], seen: Sequence[str], clusters: Sequence[Hashable]) -> dict[str, Estimate]:
    """Each of `names`: the share of `seen` that it is, n of each being their number; intervals as of `share`."""
    return {name: share([one == name for one in seen], range(len(seen)), clusters) for name in names}


def mcnemar_exact(first: Sequence[bool], second: Sequence[bool]) -> PairedComparison:
    """Compare two ways of answering the same units, `first[i]` beside `second[i]` (McNemar's exact binomial test).

    The interval of the difference is Newcombe's for paired proportions (Statistics in Medicine 17, 1998, pages 2635 to
    2650, method 10). Raises ValueError when the lengths differ.
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
    gap = paired_difference(both, only_first, only_second, neither)
    return PairedComparison(both, only_first, only_second, neither, gap, min(1.0, p_value))


def paired_difference(both: int, only_first: int, only_second: int, neither: int) -> Estimate:
    """`second - first` of two proportions of the same units, with Newcombe's paired score interval (method 10).

    With Wilson's limits l, u of each proportion p, and phi their correlation (continuity-corrected where positive):

        low  = d - sqrt((p2 - l2)^2 - 2 phi (p2 - l2)(u1 - p1) + (u1 - p1)^2)
        high = d + sqrt((u2 - p2)^2 - 2 phi (u2 - p2)(p1 - l1) + (p1 - l1)^2)

    Lies in [-1, 1]. No units give no value and the interval [-1, 1].
    """
    n = both + only_first + only_second + neither
    if n == 0:
        return Estimate(None, 0, -1.0, 1.0)
    one, two = proportion(both + only_first, n), proportion(both + only_second, n)
    assert one.value is not None and two.value is not None
    margins = math.prod((both + only_first, only_second + neither, both + only_second, only_first + neither))
    covariance = both * neither - only_first * only_second
    corrected = covariance if covariance < 0 else max(0.0, covariance - n / 2)
    phi = corrected / math.sqrt(margins) if margins else 0.0

    def reach(up: float, down: float) -> float:
        return math.sqrt(max(0.0, up**2 - 2 * phi * up * down + down**2))

    gap = two.value - one.value
    low = gap - reach(two.value - two.low, one.high - one.value)
    high = gap + reach(two.high - two.value, one.value - one.low)
    return Estimate(gap, n, *_within(low, high, -1.0, 1.0))


def paired(
    first: Sequence[bool],
    second: Sequence[bool],
    clusters: Sequence[Hashable] | None = None,
    cells: Sequence[Hashable] | None = None,
) -> PairedComparison:
    """Two ways of answering the same units that may come in clusters (several draws of an item).

    Where every unit is a cluster of its own this is `mcnemar_exact`. Otherwise, or with `cells` (then the difference is
    the unweighted mean over them, as in `clustered_mean`), the interval and the p value are those of a cluster-robust
    t test of the differences, and n is the number of clusters. Raises ValueError when the lengths differ.
    """
    plain = mcnemar_exact(first, second)
    clusters = list(range(len(first))) if clusters is None else clusters
    if cells is None and len(set(clusters)) == len(clusters):
        return plain
    if not first and not clusters:
        return plain
    change = [float(b) - float(a) for a, b in zip(first, second, strict=True)]
    mean, n, robust = _mean_of_cells(change, clusters, cells)
    if robust is not None:
        gap = Estimate(mean, n, *_within(robust[0], robust[1], -1.0, 1.0))
        return PairedComparison(plain.both, plain.only_first, plain.only_second, plain.neither, gap, robust[2])
    # No variation to estimate from: as many units as clusters, in the proportions that were seen.
    counts = (plain.both, plain.only_first, plain.only_second, plain.neither)
    fallback = paired_difference(*(round(count * n / len(first)) for count in counts))
    gap = Estimate(mean, n, min(fallback.low, mean), max(fallback.high, mean))
    p_value = 1.0 if not plain.only_first + plain.only_second else float(0.5 ** (n - 1))
    return PairedComparison(*counts, gap, min(1.0, p_value))


def graded_mean(
    values: Sequence[float],
    units: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    cells: Sequence[Hashable] | None = None,
) -> Estimate:
    """The mean of `values` in [0, 1], value i being one of unit i; n is the number of different units.

    As `share` where all are 0 or 1, else cluster-robust as in `clustered_mean`. Raises ValueError when the lengths
    differ or a value lies outside [0, 1].
    """
    if any(not 0 <= value <= 1 for value in values):
        raise ValueError("graded values must lie between 0 and 1")
    if all(value in (0, 1) for value in values):
        return share([bool(value) for value in values], units, clusters, cells)
    clusters = units if clusters is None else clusters
    estimate = clustered_mean(values, clusters, cells)
    n, distinct = len(set(units)), len(set(clusters))
    return replace(estimate, n=n, distinct=distinct if distinct < n else None)


def paired_values(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    cells: Sequence[Hashable] | None = None,
) -> PairedComparison:
    """Two ways of answering the same units whose scores lie in [0, 1]; with `cells`, the mean over them.

    As `paired` where all are 0 or 1. Else the interval and the p value are those of a cluster-robust t test of the
    differences; only_first and only_second count the units that one scores higher, both and neither the equal ones,
    with a score of 1 and below. Raises ValueError when the lengths differ.
    """
    if all(value in (0, 1) for value in (*first, *second)):
        return paired([bool(value) for value in first], [bool(value) for value in second], clusters, cells)
    change = [b - a for a, b in zip(first, second, strict=True)]
    mean, n, robust = _mean_of_cells(change, range(len(first)) if clusters is None else clusters, cells)
    # One unit, or all changed alike: nothing to estimate a spread from.
    low, high, p_value = robust if robust is not None else (-1.0, 1.0, 1.0)
    gap = Estimate(mean, n, *_within(low, high, -1.0, 1.0))
    higher, lower = sum(one > 0 for one in change), sum(one < 0 for one in change)
    equal = [one for one, other in zip(first, second, strict=True) if one == other]
    full = sum(value == 1 for value in equal)
    return PairedComparison(full, lower, higher, len(equal) - full, gap, p_value)


POWER = 0.8


def detectable_difference(n: int, p: float) -> float:
    """The smallest difference between two independent scores of `n` units each that a two-sided z test finds.

    One of the scores is `p`; "finds" is with probability POWER (statsmodels' NormalIndPower on Cohen's h). Of a rise
    and a fall the one that is harder to find counts, unless it would leave [0, 1]; 1.0 where both would. Raises
    ValueError unless n > 0 and 0 <= p <= 1.
    """
    if n <= 0 or not 0 <= p <= 1:
        raise ValueError(f"needs n > 0 and p from 0 to 1, got n = {n}, p = {p}")
    from statsmodels.stats.power import NormalIndPower

    h = float(NormalIndPower().solve_power(nobs1=n, alpha=1 - CONFIDENCE, power=POWER))
    angle = math.asin(math.sqrt(p))
    reached = [math.sin(end) ** 2 for end in (angle - h / 2, angle + h / 2) if 0 <= end <= math.pi / 2]
    return max((abs(end - p) for end in reached), default=1.0)


def detectable_change(n: int, discordant: float) -> float:
    """The smallest difference between two ways of answering the same `n` units that McNemar's exact test finds.

    discordant: the share of units on which the two differ. With m = n * discordant of them (rounded), of which a share
    s falls to the better, the difference is (2 s - 1) * discordant; s is the smallest with P(p value <= 1 -
    CONFIDENCE) >= POWER, the binomial tail solved exactly. Where m is so small that even all of them on one side prove
    nothing, the answer is the least difference that `n` units can prove at all. Raises ValueError unless n > 0 and
    0 <= discordant <= 1.
    """
    if n <= 0 or not 0 <= discordant <= 1:
        raise ValueError(f"needs n > 0 and discordant from 0 to 1, got n = {n}, discordant = {discordant}")
    from scipy.optimize import brentq
    from scipy.stats import binom

    alpha = 1 - CONFIDENCE
    m = round(n * discordant)
    # All m on one side have the p value 2 / 2^m: fewer than this can never be significant.
    least = math.ceil(1 - math.log2(alpha))
    if m < least:
        return min(1.0, least / n)
    # The fewest on the better side with a two-sided p value of at most alpha.
    critical = int(binom.isf(alpha / 2, m, 0.5)) + 1
    share = float(brentq(lambda s: binom.sf(critical - 1, m, s) - POWER, 0.5, 1.0))
    return (2 * share - 1) * m / n


class Unit(Protocol):
    """What a subset is drawn from: `uni_train.eval.benchmark.Case` is one."""

    @property
    def id(self) -> str: ...

    @property
    def set(self) -> str: ...

    @property
    def cluster(self) -> str | None: ...


U = TypeVar("U", bound=Unit)


def draw_subset(units: Sequence[U], n: int, seed: int) -> list[U]:
    """At most `n` of `units`, in their order: every set in proportion, whole clusters, the same for equal arguments.

    A larger subset of the same seed contains every smaller one, so that growing one asks nothing twice. Sets come in
    turn (the first cluster of each before any second), hence even a small subset has all of them. A cluster that does
    not fit ends the draw; the first one is always there. Raises ValueError unless n > 0.
    """
    if n <= 0:
        raise ValueError(f"a subset needs at least one unit, got {n}")
    members: dict[tuple[str, str], list[int]] = {}
    for index, unit in enumerate(units):
        members.setdefault((unit.set, unit.cluster or unit.id), []).append(index)
    strata: dict[str, list[tuple[str, str]]] = {}
    for key in members:
        strata.setdefault(key[0], []).append(key)
    places: list[tuple[float, int, tuple[str, str]]] = []
    for keys in strata.values():
        drawn = sorted(keys, key=lambda key: derive_seed("subset", seed, *key))
        places += [(rank / len(keys), derive_seed("subset", seed, key[0]), key) for rank, key in enumerate(drawn)]
    chosen: list[int] = []
    for *_, key in sorted(places):
        if chosen and len(chosen) + len(members[key]) > n:
            break
        chosen += members[key]
    return [units[index] for index in sorted(chosen)]


def _mean_of_cells(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    cells: Sequence[Hashable] | None,
) -> tuple[float, int, tuple[float, float, float] | None]:
    """The mean of the cells' means, the number of clusters, and the mean's cluster-robust (low, high, p value).

    The latter is None where there is no variation to estimate it from. Raises ValueError when the lengths differ.
    """
    import numpy as np

    cells = [0] * len(values) if cells is None else cells
    if not len(values) == len(clusters) == len(cells):
        raise ValueError("values, clusters and cells must have the same length")
    cell_of, groups = _codes(cells), _codes(clusters)
    outcome, indicator = np.asarray(values, dtype=float), np.eye(max(cell_of) + 1)[cell_of]
    mean, n = float(np.mean(indicator.T @ outcome / indicator.sum(axis=0))), max(groups) + 1
    if n < 2 or np.ptp(outcome) == 0 or len(outcome) <= indicator.shape[1]:
        return mean, n, None
    from statsmodels.regression.linear_model import OLS

    fit = OLS(outcome, indicator).fit(cov_type="cluster", cov_kwds={"groups": np.asarray(groups)}, use_t=True)
    test = fit.t_test(np.full((1, indicator.shape[1]), 1 / indicator.shape[1]))
    low, high = (float(x) for x in test.conf_int(alpha=1 - CONFIDENCE)[0])
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return mean, n, None
    return mean, n, (low, high, float(test.pvalue))


def _codes(labels: Sequence[Hashable]) -> list[int]:
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(label, len(seen)) for label in labels]


def _within(low: float, high: float, least: float, most: float) -> tuple[float, float]:
    return min(max(low, least), most), min(max(high, least), most)
