"""Estimates with n and a 95 % interval, paired comparisons, and detectable differences.

Every share and mean of shares has the same interval: mid-P at an effective sample size (Korn and Graubard 1998), put
together by MOVER over cells of unequal size. So one value has one interval wherever it stands. No library here has it
for clusters in cells, nor Newcombe's for pairs. Power and tests come from statsmodels and scipy, which are imported
inside the functions because they load slowly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uni_train.core.seeds import derive_seed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from uni_train.eval.sample import Case

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

    @property
    def signed(self) -> bool:
        """Whether it is written with its sign."""
        return self.low < 0

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
        shown = "none" if self.value is None else f"{self.value:z.2f} [{self.low:z.2f}, {self.high:z.2f}]"
        return f"{shown} n={self.n}" + ("" if self.distinct is None else f" ({self.distinct} distinct)")


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two ways of answering the same units: the 2 x 2 table, `second - first`, and its p value."""

    both: int
    only_first: int
    only_second: int
    neither: int
    difference: Estimate
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        counts = {"both": self.both, "only_first": self.only_first, "only_second": self.only_second}
        return counts | {"neither": self.neither, "difference": self.difference.to_dict(), "p_value": self.p_value}


def signed(value: float, digits: int = 2) -> str:
    """+0.25, −0.25, and 0.00 of what rounds to nothing, whatever its sign."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"


def proportion(successes: int, n: int) -> Estimate:
    """`successes` of `n` independent units, with the interval of `share`.

    Raises ValueError unless 0 <= successes <= n. n = 0 gives no value and the interval [0, 1].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, got {successes} of {n}")
    if n == 0:
        return Estimate(None, 0, 0.0, 1.0)
    low, high = interval(successes / n, n)
    return Estimate(successes / n, n, float(low), float(high))


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
    return Estimate(mean, n, max(float(low), bounds[0]), min(float(high), bounds[1]))


def share(
    outcomes: Sequence[float],
    units: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    cells: Sequence[Hashable] | None = None,
) -> Estimate:
    """The mean of `outcomes` in [0, 1], True and False or graded, with its interval; outcome i is one of unit i.

    clusters: what dependent outcomes share, such as an item drawn several times or a pair (None: the unit). cells: the
    value is the unweighted mean of the cells' means, the papers' "average over sets". n is the number of different
    units; `distinct` that of clusters, where there are fewer. The interval is that of `Means`. Raises
    ValueError when the lengths differ or an outcome lies outside [0, 1].
    """
    clusters = units if clusters is None else clusters
    if len(outcomes) != len(units):
        raise ValueError("outcomes and units must have the same length")
    if any(not 0 <= outcome <= 1 for outcome in outcomes):
        raise ValueError("outcomes must lie between 0 and 1")
    n, distinct = len(set(units)), len(set(clusters))
    means = Means.from_outcomes(outcomes, clusters, cells)
    if not n:
        return Estimate(None, 0, 0.0, 1.0)
    return Estimate(float(means.values), n, float(means.low), float(means.high), distinct if distinct < n else None)


def shares(names: Iterable[str], seen: Sequence[str], clusters: Sequence[Hashable]) -> dict[str, Estimate]:
    """Each of `names`: the share of `seen` that it is, n of each being their number; intervals as of `share`."""
    names, n, distinct = list(names), len(seen), len(set(clusters))
    if not n or not names:
        return {name: share([], []) for name in names}
    means = Means.from_outcomes([[outcome == name for outcome in seen] for name in names], clusters)
    bounds = zip(names, means.values, means.low, means.high, strict=True)
    repeats = distinct if distinct < n else None
    return {name: Estimate(float(value), n, float(low), float(high), repeats) for name, value, low, high in bounds}


def interval(mean: ArrayLike, size: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The mid-P interval of shares `mean` [...] of `size` [...] units: Clopper and Pearson's with half of the atom.

    Lancaster 1961; Berry and Armitage 1995. With x = mean * size and X ~ Binomial(size, p), the lower limit solves

        P(X > x) + P(X = x) / 2 = 0.025

    for p, by the incomplete beta function; `size` need not be whole (Korn and Graubard 1998). The upper one mirrors it.
    Each lies in [0, 1] and holds `mean`.
    """
    import numpy as np
    from scipy.special import betainc

    mean, size = np.broadcast_arrays(np.asarray(mean, dtype=float), np.asarray(size, dtype=float))

    def lower(mean: np.ndarray) -> np.ndarray:
        x, rest = np.maximum(mean * size, 1e-9), (1 - mean) * size
        low, high = np.zeros_like(mean), mean
        for _ in range(40):  # halvings: to 1e-12
            p = (low + high) / 2
            beyond = np.where(rest > 0, betainc(x + 1, np.maximum(rest, 1e-9), p), 0.0)
            covered = betainc(x, rest + 1, p) + beyond > 1 - CONFIDENCE
            low, high = np.where(covered, low, p), np.where(covered, p, high)
        return low

    return np.round(lower(mean), 12), np.round(np.maximum(1 - lower(1 - mean), mean), 12)


PRIOR = 2.0  # the clusters' worth of trust in that clusters agree and cells do not differ


@dataclass(frozen=True, slots=True)
class Means:
    """Means of cells' means of outcomes in [0, 1], with their intervals.

    values, low, high [...]: the means and their limits. totals, influences [..., G]: what each cluster adds to the
    mean, and to its error. agreeing: 1 over the number of clusters, weighted (Kish 1965).
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    totals: np.ndarray
    influences: np.ndarray
    agreeing: float

    @classmethod
    def from_outcomes(
        cls, outcomes: ArrayLike, clusters: Sequence[Hashable], cells: Sequence[Hashable] | None = None
    ) -> Means:
        """Of outcomes [..., N]. Raises ValueError when the lengths differ.

        The smallest cells decide the error of a mean over cells. So cells of about as many clusters (1 to 2 times the
        fewest, 2 to 4 times, ...) are a part. Each part p has an interval, low_p to high_p about m_p, at the size that
        `_sizes` gives. MOVER (Zou and Donner 2008) puts the parts together. w_p is a part's share of the cells, r_pq
        the correlation of two errors (0 unless they share clusters). The lower limit, and so the upper, has the
        distance

            sqrt(sum over p, q of r_pq w_p (m_p - low_p) w_q (m_q - low_q)).

        A spread inside C cells of G clusters has G - C degrees of freedom. So the size is multiplied by a ratio of
        Student's quantiles, (t_{G-1} / t_{G-C})^2 (Korn and Graubard 1998). It is 1 in one cell.
        """
        import numpy as np
        from scipy.sparse import csr_array
        from scipy.special import stdtrit

        y = np.asarray(outcomes, dtype=float)
        cells = [0] * len(clusters) if cells is None else cells
        if not y.shape[-1] == len(clusters) == len(cells):
            raise ValueError("outcomes, clusters and cells must have the same length")
        if not len(clusters):
            empty = np.zeros(y.shape[:-1])
            return cls(empty, empty, empty + 1, y, y, 0.0)
        cell, cluster = _codes(cells), _codes(clusters)
        rows, ones = range(len(cell)), np.ones(len(cell))
        in_cell, in_cluster = (csr_array((ones, (rows, codes))) for codes in (cell, cluster))
        counts = np.bincount([entry for entry, _ in set(zip(cell, cluster, strict=True))])
        kinds = np.log2(counts / counts.min()).astype(int)
        in_part = kinds[:, None] == np.unique(kinds)
        units, many, shares = in_cell.sum(axis=0), in_part.sum(axis=0), in_part.mean(axis=0)
        weights = (in_part / (units[:, None] * many))[cell]
        centres = y @ in_cell / units
        parts = centres @ in_part / many
        adds = weights.T @ in_cluster
        # A cell of one cluster says nothing about its spread: it is compared with its part.
        centres = np.where(counts > 1, centres, parts @ in_part.T)
        many_clusters, spreads = np.count_nonzero(adds, axis=1), np.maximum(np.where(counts > 1, 1, 0) @ in_part, 1)
        counts = np.where(counts > 1, counts, in_part @ many_clusters)
        quantiles = (stdtrit(np.maximum(many_clusters - used, 1), 1 - (1 - CONFIDENCE) / 2) for used in (1, spreads))
        few = np.divide(*quantiles) ** 2
        errors = (y - centres[..., cell]) * np.sqrt(counts / np.maximum(counts - 1, 1))[cell]
        influences = np.stack([(errors * some) @ in_cluster for some in weights.T], axis=-2)
        variances = (influences**2).sum(axis=-1)
        limits = np.stack(interval(parts, few * _sizes(parts, variances, (adds**2).sum(axis=-1))))
        reach = shares * abs(limits - parts)
        known = variances > 1e-24
        vectors = influences / np.sqrt(np.where(known, variances, np.inf))[..., None]
        squares = ((reach[..., None] * vectors).sum(axis=-2) ** 2).sum(axis=-1) + (reach**2 * ~known).sum(axis=-1)
        values, adds = parts @ shares, shares @ adds
        below, above = np.sqrt(squares)
        low, high = (abs(np.clip(np.round(end, 12), 0, 1)) for end in (values - below, values + above))  # no -0.0
        return cls(values, low, high, (y * (weights @ shares)) @ in_cluster, shares @ influences, float(adds @ adds))


def _sizes(means: np.ndarray, variances: np.ndarray, agreeing: np.ndarray) -> np.ndarray:
    """The sizes [..., P] of independent samples that say as much as means [..., P] of these variances.

    With m the mean and V its cluster-robust variance (linearised, G / (G - 1) in each cell), the size would be
    n = 1 + m (1 - m) / V (Korn and Graubard 1998). V says little where few outcomes differ, and nothing where cells are
    constant. Hence 1 / n is shrunk to that of clusters that agree, `agreeing` [P], with weight PRIOR against
    4 m (1 - m) times the clusters: all of it at 0 and 1.
    """
    import numpy as np

    spread = means * (1 - means)
    spread = np.where(spread > 1e-12, spread, 0.0)
    trust = PRIOR / (PRIOR + 4 * spread / agreeing)
    observed = np.divide(variances, spread + variances, out=np.zeros_like(means), where=spread > 0)
    return 1 / ((1 - trust) * observed + trust * agreeing)


def paired(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    cells: Sequence[Hashable] | None = None,
) -> PairedComparison:
    """Two ways of answering the same units, `first[i]` beside `second[i]`, in [0, 1]; clusters and cells as in `share`.

    Newcombe's interval for paired proportions (Statistics in Medicine 17, 1998, pages 2635 to 2650, method 10). l and u
    are the limits of the two means. r is their correlation, of the clusters' influences, continuity-corrected:

        low  = d - sqrt((m2 - l2)^2 - 2 r (m2 - l2)(u1 - m1) + (u1 - m1)^2)
        high = d + sqrt((u2 - m2)^2 - 2 r (u2 - m2)(m1 - l1) + (m1 - l1)^2)

    n is the number of clusters. The p value is that of the sign-flip test over clusters: McNemar's exact test, where
    every unit is its own. only_first and only_second count the units that score higher there; both and neither
    the equal ones, with a score of 1 and below. Nothing gives no value and [-1, 1]. Raises ValueError as `share`.
    """
    if len(first) != len(second):
        raise ValueError(f"paired outcomes need equal lengths, got {len(first)} and {len(second)}")
    import numpy as np

    y = np.array([first, second], dtype=float)
    means = Means.from_outcomes(y, range(len(first)) if clusters is None else clusters, cells)
    lower, higher, full = (int(np.sum(some)) for some in (y[0] > y[1], y[0] < y[1], (y == 1).all(axis=0)))
    if not len(first):
        return PairedComparison(0, 0, 0, 0, Estimate(None, 0, -1.0, 1.0), 1.0)
    (down1, down2), (up1, up2) = means.values - means.low, means.high - means.values
    (s11, s12), (_, s22) = means.influences @ means.influences.T
    corrected = s12 if s12 < 0 else max(0.0, s12 - means.agreeing**2 / (2 * max(1 - means.agreeing, 1e-9)))
    r = corrected / math.sqrt(s11 * s22) if s11 * s22 > 0 else 0.0
    gap = float(means.values[1] - means.values[0])
    below, above = (math.sqrt(max(0.0, a**2 - 2 * r * a * b + b**2)) for a, b in ((down2, up1), (up2, down1)))
    difference = Estimate(gap, means.totals.shape[1], max(-1.0, gap - below), min(1.0, gap + above))
    p_value = _sign_flips(means.totals[1] - means.totals[0])
    return PairedComparison(full, lower, higher, len(first) - full - lower - higher, difference, p_value)


def _sign_flips(changes: np.ndarray) -> float:
    """The two-sided p value of the sum of `changes` [G] among sums with other signs: all, or 10,000 drawn ones."""
    import numpy as np
    from scipy.stats import binomtest

    changes = changes[np.abs(changes) > 1e-12]
    n = len(changes)
    if not n:
        return 1.0
    if np.ptp(np.abs(changes)) < 1e-12:
        return float(binomtest(int((changes > 0).sum()), n).pvalue)
    if n <= 12:
        signs = np.array(list(itertools.product((1, -1), repeat=n)))
    else:
        signs = np.random.default_rng(0).integers(0, 2, (10_000, n), dtype=np.int8) * 2 - 1
        signs[0] = 1
    return float(np.mean(np.abs(signs @ changes) >= abs(changes.sum()) * (1 - 1e-9)))


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

    discordant: the share of units on which the two differ, m = n * discordant (rounded). A share s of these falls to
    the better, so the difference is (2 s - 1) * discordant. s is the smallest with

        P(p value <= 1 - CONFIDENCE) >= POWER,

    the binomial tail solved exactly. A small m may prove nothing even with all on one side. Then the answer is the
    least difference that `n` units can prove at all. Raises ValueError unless n > 0 and 0 <= discordant <= 1.
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


def draw_subset(cases: Sequence[Case], n: int, seed: int) -> list[Case]:
    """At most `n` of the cases, in their order: every set in proportion, whole clusters, the same for equal arguments.

    A larger subset of the same seed contains every smaller one, so that growing one asks nothing twice. Sets come in
    turn (the first cluster of each before any second). A cluster that does not fit ends the draw. So a small subset may
    leave sets out; the first cluster is always there. Raises ValueError unless n > 0.
    """
    if n <= 0:
        raise ValueError(f"a subset needs at least one case, got {n}")
    members: dict[tuple[str, str], list[int]] = {}
    for index, case in enumerate(cases):
        members.setdefault((case.set, case.cluster or case.id), []).append(index)
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
    return [cases[index] for index in sorted(chosen)]


def _codes(labels: Sequence[Hashable]) -> list[int]:
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(label, len(seen)) for label in labels]
