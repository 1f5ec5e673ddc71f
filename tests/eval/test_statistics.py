from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval import statistics
from eval.statistics import Estimate


# Newcombe (1998), "Two-sided confidence intervals for the single proportion", Table I, method 3.
@pytest.mark.parametrize(
    ("successes", "n", "low", "high"), [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]
)
def test_wilson_as_published(successes: int, n: int, low: float, high: float) -> None:
    estimate = statistics.proportion(successes, n)
    assert (estimate.value, estimate.n) == (successes / n, n)
    assert (estimate.low, estimate.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


# Newcombe (1998), "Interval estimation for the difference between independent proportions", Table II, method 10.
@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [((48, 80), (56, 70), 0.0524, 0.3339), ((3, 10), (9, 10), 0.1705, 0.8090), ((0, 10), (10, 10), 0.6075, 1.0)],
)
def test_newcombe_as_published(first: tuple[int, int], second: tuple[int, int], low: float, high: float) -> None:
    gap = statistics.difference(*first, *second)
    assert gap.value == pytest.approx(second[0] / second[1] - first[0] / first[1])
    assert (gap.low, gap.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_proportion_lies_inside_its_interval(counts: tuple[int, int]) -> None:
    estimate = statistics.proportion(*counts)
    assert 0 <= estimate.low <= estimate.high <= 1
    assert estimate.value is None if counts[1] == 0 else estimate.low <= estimate.value <= estimate.high
    assert Estimate.from_dict(json.loads(json.dumps(estimate.to_dict()))) == estimate


def test_mean_over_seeds_is_students_interval() -> None:
    values = [0.80, 0.86, 0.89]
    mean, deviation = 0.85, 0.045825757
    margin = 4.302652730 * deviation / math.sqrt(3)  # t(0.975, 2 degrees of freedom)
    estimate = statistics.mean_over_seeds(values)
    assert (estimate.value, estimate.n) == (pytest.approx(mean), 3)
    assert (estimate.low, estimate.high) == (pytest.approx(mean - margin), pytest.approx(mean + margin))


def test_seeds_that_say_nothing_about_the_spread() -> None:
    assert statistics.mean_over_seeds([0.5]) == Estimate(0.5, 1, 0.0, 1.0)
    assert statistics.mean_over_seeds([0.5, 0.5]) == Estimate(0.5, 2, 0.5, 0.5)
    seconds = statistics.mean_over_seeds([12.0], bounds=(-math.inf, math.inf))
    assert Estimate.from_dict(json.loads(json.dumps(seconds.to_dict(), allow_nan=False))) == seconds
    with pytest.raises(ValueError, match="at least one seed"):
        statistics.mean_over_seeds([])


@given(st.lists(st.booleans(), min_size=4, max_size=12), st.integers(2, 4))
def test_asking_the_same_again_adds_no_evidence(outcomes: list[bool], times: int) -> None:
    units = list(range(len(outcomes)))
    once = statistics.clustered_mean(list(map(float, outcomes)), units)
    repeated = statistics.clustered_mean(list(map(float, outcomes)) * times, units * times)
    assert repeated.n == once.n == len(outcomes)
    assert (repeated.value, repeated.low, repeated.high) == (
        pytest.approx(once.value), pytest.approx(once.low), pytest.approx(once.high)
    )  # fmt: skip
    assert 0 <= once.low <= once.high <= 1 and once.high > once.low


def test_cells_count_equally_whatever_their_size() -> None:
    values, clusters = [1.0] * 10 + [0.0, 0.0, 1.0, 0.0], [*range(10), *range(10, 14)]
    cells = ["large"] * 10 + ["small"] * 4
    assert statistics.clustered_mean(values, clusters, cells).value == pytest.approx((1.0 + 0.25) / 2)


def test_mcnemar_exact() -> None:
    first = [True] * 3 + [True] * 1 + [False] * 6 + [False] * 2
    second = [True] * 3 + [False] * 1 + [True] * 6 + [False] * 2
    result = statistics.mcnemar_exact(first, second)
    assert (result.both, result.only_first, result.only_second, result.neither) == (3, 1, 6, 2)
    assert result.p_value == pytest.approx(2 * (1 + 7) / 2**7)  # two-sided binomial(7, 1/2), at most one
    assert result.difference.value == pytest.approx(5 / 12)
    assert statistics.mcnemar_exact(first, first).p_value == 1.0
    with pytest.raises(ValueError, match="equal lengths"):
        statistics.mcnemar_exact([True], [])
