from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.eval import statistics
from uni_train.eval.statistics import Estimate, mean_over_seeds, paired, proportion, share


# Berry and Armitage (1995), "Mid-P confidence intervals: a brief review": the limits solve the mid-P equation.
@pytest.mark.parametrize(("successes", "n"), [(81, 263), (0, 20), (1, 29), (20, 20), (3, 5)])
def test_limits_leave_half_of_the_observed_value_in_each_tail(successes: int, n: int) -> None:
    from scipy.stats import binom

    estimate = proportion(successes, n)
    assert (estimate.value, estimate.n) == (successes / n, n)
    half = binom.pmf(successes, n, (estimate.low, estimate.high)) / 2
    if successes > 0:
        assert binom.sf(successes, n, estimate.low) + half[0] == pytest.approx(0.025, abs=1e-9)
    if successes < n:
        assert binom.cdf(successes - 1, n, estimate.high) + half[1] == pytest.approx(0.025, abs=1e-9)
    assert (estimate.low == 0) == (successes == 0) and (estimate.high == 1) == (successes == n)


@given(st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_proportion_lies_inside_its_interval(counts: tuple[int, int]) -> None:
    estimate = proportion(*counts)
    assert 0 <= estimate.low <= estimate.high <= 1
    assert estimate.value is None if counts[1] == 0 else estimate.low <= estimate.value <= estimate.high
    assert Estimate.from_dict(json.loads(json.dumps(estimate.to_dict()))) == estimate


def test_a_limit_of_zero_has_no_minus_sign() -> None:
    low = share([0.017, 0.015, 0.008, 0.005], range(4), ["a", "a", "b", "b"]).low
    assert f"{low:.2f}" == "0.00"


def test_mean_over_seeds_is_students_interval() -> None:
    values = [0.80, 0.86, 0.89]
    mean, deviation = 0.85, 0.045825757
    margin = 4.302652730 * deviation / math.sqrt(3)  # t(0.975, 2 degrees of freedom)
    estimate = mean_over_seeds(values)
    assert (estimate.value, estimate.n) == (pytest.approx(mean), 3)
    assert (estimate.low, estimate.high) == (pytest.approx(mean - margin), pytest.approx(mean + margin))
    # Seeds that say nothing about the spread.
    assert mean_over_seeds([0.5]) == Estimate(0.5, 1, 0.0, 1.0)
    assert mean_over_seeds([0.5, 0.5]) == Estimate(0.5, 2, 0.5, 0.5)
    seconds = mean_over_seeds([12.0], bounds=(-math.inf, math.inf))
    assert Estimate.from_dict(json.loads(json.dumps(seconds.to_dict(), allow_nan=False))) == seconds
    with pytest.raises(ValueError, match="at least one seed"):
        mean_over_seeds([])


def test_constant_cells_do_not_narrow_an_interval() -> None:
    halves = share([True] * 100 + [False] * 100, range(200), cells=["right"] * 100 + ["wrong"] * 100)
    assert halves.value == 0.5 and 0.01 < halves.high - halves.low < 0.1
    pairs = [True, False] * 3
    assert share(pairs, range(6), [0, 0, 1, 1, 2, 2]).high > 0.75
    outcomes = [True, True, False, True]
    assert share(outcomes, range(4), cells=["all"] * 4) == share(outcomes, range(4)) == proportion(3, 4)
    # A cell of one cluster says nothing about its spread: it is compared with the whole.
    apart = share(outcomes, range(4), cells=range(4))
    assert (apart.low, apart.high) == (pytest.approx(proportion(3, 4).low), pytest.approx(proportion(3, 4).high))
    gap = paired([False] * 12, [True] * 10 + [False] * 2, cells=["gained"] * 10 + ["kept"] * 2).difference
    assert gap.value == pytest.approx(0.5) and gap.low < 0.45 and gap.high > 0.55  # however large the cells are


def test_small_cells_decide_how_wide_an_average_is() -> None:
    """By MOVER: half the distances of the cells' limits, squared and added. Clusters in several cells add up."""
    found = share([False] * 5 + [True] * 40 + [False] * 160, range(205), cells=[0] * 5 + [1] * 200)
    small, large = proportion(0, 5), proportion(40, 200)
    assert found.value == 0.1 and found.low == pytest.approx(0.1 - (0.2 - large.low) / 2)
    assert found.high == pytest.approx(0.1 + math.hypot(small.high, large.high - 0.2) / 2)
    outcomes, cells = [True, False] * 2 + [True, False] * 8, [0] * 4 + [1] * 16
    apart = share(outcomes, range(20), range(20), cells)
    together = share(outcomes, range(20), [*range(4), *range(4), *range(4, 16)], cells)
    assert together.low < apart.low and apart.high < together.high


def test_mcnemar_exact() -> None:
    first = [True] * 3 + [True] * 1 + [False] * 6 + [False] * 2
    second = [True] * 3 + [False] * 1 + [True] * 6 + [False] * 2
    result = paired(first, second)
    assert (result.both, result.only_first, result.only_second, result.neither) == (3, 1, 6, 2)
    assert result.p_value == pytest.approx(2 * (1 + 7) / 2**7)  # two-sided binomial(7, 1/2), at most one
    assert result.difference.value == pytest.approx(5 / 12)
    assert paired(first, first).p_value == 1.0
    with pytest.raises(ValueError, match="equal lengths"):
        paired([True], [])


# Newcombe (1998), "Improved confidence intervals for the difference between binomial proportions based on paired data",
# Table II, method 10, and by symmetry.
@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((36, 12, 2, 0), -0.3404, -0.0569), ((36, 2, 12, 0), 0.0569, 0.3404), ((0, 12, 2, 36), -0.3404, -0.0569)],
)
def test_newcombes_paired_interval_as_published(counts: tuple[int, int, int, int], low: float, high: float) -> None:
    """But for the limits of the two shares: Newcombe takes Wilson's, which differ by a few thousandths here."""
    both, only_first, only_second, neither = counts
    first = [True] * (both + only_first) + [False] * (only_second + neither)
    second = [True] * both + [False] * only_first + [True] * only_second + [False] * neither
    gap = paired(first, second).difference
    assert (gap.low, gap.high) == (pytest.approx(low, abs=2e-3), pytest.approx(high, abs=2e-3))


def ends(estimate: Estimate) -> Any:
    return pytest.approx([estimate.value, estimate.low, estimate.high])


SCORES = st.sampled_from([0.0, 0.3, 0.7, 1.0]) | st.floats(0.01, 0.99)
ROWS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=12)
GRADED = st.lists(st.tuples(SCORES, SCORES), min_size=3, max_size=12)


@settings(max_examples=40)
@given(ROWS | GRADED, st.integers(2, 4))
def test_a_difference_is_antisymmetric_and_asking_the_same_again_adds_no_evidence(
    rows: list[tuple[float, float]], times: int
) -> None:
    (first, second), units = map(list, zip(*rows, strict=True)), [*range(len(rows))]
    there, back = paired(first, second), paired(second, first)
    gap, mirrored = there.difference, back.difference
    assert gap.value is not None and mirrored.value is not None
    assert -1 <= gap.low <= gap.value + 1e-12 and gap.value - 1e-12 <= gap.high <= 1
    assert [-mirrored.value, -mirrored.high, -mirrored.low] == ends(gap)
    assert there.p_value == pytest.approx(back.p_value) and there == paired(first, second, units)
    once, more = share(first, units), share(first * times, units * times)
    assert once.value == pytest.approx(sum(first) / len(first))
    assert 0 <= once.low <= once.value <= once.high <= 1 and once.high > once.low
    again = paired(first * times, second * times, units * times).difference
    assert again.n == gap.n == more.n == once.n == len(rows)
    assert [again.value, again.low, again.high] == ends(gap) and [more.value, more.low, more.high] == ends(once)


def test_a_clustered_comparison_flips_the_signs_of_clusters() -> None:
    gains = [1.0, 1.0, 0.5, 0.0, -0.5, 0.5]  # of two draws each
    draws = {1.0: [(0, 1), (0, 1)], 0.5: [(0, 1), (0, 0)], 0.0: [(1, 1), (0, 0)], -0.5: [(1, 0), (1, 1)]}
    rows = [(bool(a), bool(b), i) for i, gain in enumerate(gains) for a, b in draws[gain]]
    found = paired([a for a, *_ in rows], [b for _, b, _ in rows], [i for *_, i in rows])
    from scipy.stats import permutation_test

    test = permutation_test((gains,), sum, permutation_type="samples", vectorized=False)
    assert found.difference.value == pytest.approx(sum(gains) / 6)
    assert found.p_value == pytest.approx(test.pvalue)
    assert (found.both, found.only_first, found.only_second, found.neither) == (2, 1, 6, 3)


def test_detectable_difference_has_the_power_it_promises() -> None:
    from statsmodels.stats.power import NormalIndPower
    from statsmodels.stats.proportion import proportion_effectsize

    for n, p, sign in [(100, 0.5, 1), (100, 0.9, -1), (300, 0.1, 1), (100, 0.0, 1), (50, 0.99, -1)]:
        gap = statistics.detectable_difference(n, p)
        power = NormalIndPower().power(abs(proportion_effectsize(p + sign * gap, p)), n, 0.05)
        assert power == pytest.approx(0.8, abs=1e-4)
    assert statistics.detectable_difference(2, 0.5) == 1.0
    assert statistics.detectable_difference(400, 0.5) < statistics.detectable_difference(100, 0.5)
    with pytest.raises(ValueError, match="n > 0"):
        statistics.detectable_difference(0, 0.5)


def test_detectable_change_has_the_power_it_promises() -> None:
    """Exactly, by summing over all splits of the discordant units."""
    from scipy.stats import binom

    n, discordant = 100, 0.3
    share = (statistics.detectable_change(n, discordant) / 0.3 + 1) / 2
    power = sum(
        binom.pmf(won, 30, share)
        for won in range(16, 31)
        if paired([False] * won + [True] * (30 - won), [True] * won + [False] * (30 - won)).p_value <= 0.05
    )
    assert power == pytest.approx(0.8, abs=1e-6)
    assert statistics.detectable_change(100, 0.02) == 0.06  # six flips to one side are the fewest that prove anything
    assert statistics.detectable_change(3, 0.0) == 1.0


@dataclass(frozen=True)
class Unit:
    id: str
    set: str
    cluster: str | None = None


UNITS = [Unit(f"a{i}", "a") for i in range(30)] + [Unit(f"b{i}", "b", f"pair{i // 2}") for i in range(20)]


@given(st.integers(1, 60), st.integers(0, 5))
def test_a_subset_grows_and_keeps_clusters_and_proportions(n: int, seed: int) -> None:
    drawn = statistics.draw_subset(UNITS, n, seed)
    larger = statistics.draw_subset(UNITS, n + 1, seed)
    assert set(drawn) <= set(larger) and drawn == [unit for unit in UNITS if unit in drawn]
    assert len(drawn) <= max(n, 2) and len(drawn) >= min(n, 50) - 1
    pairs = [unit.cluster for unit in drawn if unit.cluster]
    assert all(pairs.count(pair) == 2 for pair in pairs)
    if n > 3:
        assert abs(sum(unit.set == "a" for unit in drawn) - 0.6 * len(drawn)) <= 2
    assert {unit.set for unit in drawn} == {"a", "b"} or n < 3
    assert drawn != statistics.draw_subset(UNITS, n, seed + 6) or not 3 < n < 47
    with pytest.raises(ValueError, match="at least one"):
        statistics.draw_subset(UNITS, 0, 0)


def test_a_share_knows_how_many_of_its_units_differ() -> None:
    alone = share([True, False, True], ["a", "b", "c"])
    assert alone == proportion(2, 3) and "distinct" not in alone.to_dict()
    repeated = share([True, True, True, False], ["a", "b", "c", "d"], ["x", "x", "x", "y"])
    assert (repeated.value, repeated.n, repeated.distinct) == (0.75, 4, 2)
    assert repeated.high - repeated.low > alone.high - alone.low  # two expressions, not four prompts
    assert Estimate.from_dict(repeated.to_dict()) == repeated and "n=4 (2 distinct)" in str(repeated)
    drawn_twice = share([True, False], ["a", "a"])
    assert (drawn_twice.n, drawn_twice.distinct) == (1, None)
    with pytest.raises(ValueError, match="same length"):
        share([True], ["a", "b"])


def test_graded_scores_are_compared_by_their_differences() -> None:
    values, units = [1.0, 0.0, 1.0, 1.0], list("abcd")
    assert share(values, units) == share([bool(value) for value in values], units)  # 0 and 1 are shares
    assert paired(values, values[::-1]) == paired([True, False, True, True], [True, True, False, True])
    with pytest.raises(ValueError, match="between 0 and 1"):
        share([1.5], ["a"])
    first, second = [0.2, 0.5, 0.9, 1.0, 0.4, 0.3], [0.4, 0.6, 0.8, 1.0, 0.4, 0.7]
    found = paired(first, second)
    assert (found.only_first, found.only_second, found.both, found.neither) == (1, 3, 1, 1)
    assert found.difference.value == pytest.approx(0.6 / 6) and found.difference.n == 6
    assert found.difference.low < 0.1 < found.difference.high and 0 < found.p_value < 1
    repeated = paired(first * 4, second * 4, [*range(6)] * 4)
    assert repeated.difference.n == 6 and repeated.p_value > 0.05, "copies of a unit prove nothing"
    alone = paired([0.5], [0.7])
    assert alone.difference.value == pytest.approx(0.2) and alone.difference.low < -0.5 and alone.p_value == 1.0
    # One value a cell leaves nothing to estimate the spread from.
    estimate = share([0.75, 0.5], ["a", "b"], cells=["space", "art"])
    assert estimate.value == 0.625 and estimate.n == 2 and 0 <= estimate.low < 0.625 < estimate.high <= 1
