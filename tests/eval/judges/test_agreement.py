from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from statsmodels.stats.inter_rater import cohens_kappa

from uni_train.eval.judges import agreement as agree
from uni_train.eval.judges.agreement import Agreement, Rating, agreement
from uni_train.eval.statistics import proportion


def test_kappa_and_balanced_accuracy() -> None:
    # 35 of 50 agree where chance alone gives 25: (0.7 - 0.5) / (1 - 0.5).
    table = {"right": {"pass": 20, "fail": 5, "none": 0}, "wrong": {"pass": 10, "fail": 15, "none": 0}}
    found = agree.kappa(table)
    assert found.value == pytest.approx(0.4) and found.n == 50 and found.low < 0.4 < found.high
    # No answers are disagreements: kappa falls.
    assert agree.kappa({**table, "right": {"pass": 18, "fail": 5, "none": 2}}).value < 0.4  # type: ignore[operator]
    perfect = agree.kappa({"right": {"pass": 30, "fail": 0, "none": 0}, "wrong": {"pass": 0, "fail": 30, "none": 0}})
    assert perfect.value == 1.0 and perfect.low == pytest.approx(2 * proportion(60, 60).low - 1)
    nothing = dict.fromkeys(agree.OUTCOMES, 0)
    assert agree.kappa({"right": nothing | {"pass": 9}, "wrong": nothing}).value is None
    both = agree.mean_of_two(proportion(8, 10), proportion(6, 10))
    assert both.value == pytest.approx(0.7) and both.n == 20
    single = proportion(14, 20)
    assert 0 < both.low < both.high < 1 and both.high - both.low == pytest.approx(single.high - single.low, rel=0.15)


def graded(n: int, items: int, seed: int = 0) -> list[Rating]:
    """Ratings of some items, each rated as often as every other, by a judge that is about right."""
    draw = np.random.default_rng(seed)
    truths = draw.uniform(size=items)
    values = np.clip(truths[np.arange(n) % items] + draw.normal(scale=0.2, size=n), 0, 1)
    return [
        Rating(f"i{i % items}", float(truths[i % items]), "pass" if value > 0.5 else "fail", float(value))
        for i, value in enumerate(values)
    ]


def test_numbers_are_those_of_the_libraries() -> None:
    ratings = graded(200, 50)
    found = agreement(ratings)
    x, y = [one.truth for one in ratings], [one.value for one in ratings]
    assert found.pearson.value == pytest.approx(pearsonr(x, y).statistic)
    assert found.spearman.value == pytest.approx(spearmanr(x, y).statistic)
    assert found.mae.value == pytest.approx(np.mean(np.abs(np.subtract(x, y))))
    both = (True, False)
    table = [[sum(one.right == a and (one.outcome == "pass") == b for one in ratings) for b in both] for a in both]
    assert found.kappa.value == pytest.approx(cohens_kappa(table).kappa)
    assert found.always_no.value == pytest.approx(sum(not one.right for one in ratings) / 200)
    assert found.accuracy.n == 200 and found.accuracy.distinct == 50
    assert Agreement.from_dict(found.to_dict()) == found == agreement(ratings)


def test_bins_are_those_of_vigor() -> None:
    pairs = [(0.33, 0.0, True), (0.34, 0.33, False), (0.67, 0.34, True), (0.68, 1.0, True), (0.68, 0.67, False)]
    for truth, value, same in pairs:
        assert agreement([Rating("a", truth, "pass", value)]).bins.value == float(same), (truth, value)


def test_intervals_know_that_ratings_of_an_item_repeat_each_other() -> None:
    """Nominal 95 % intervals of accuracy, over many sets of 30 items with five equal ratings each."""
    draw, covered, naive = np.random.default_rng(1), 0, 0
    for _ in range(40):
        hits = draw.uniform(size=30) < 0.8
        ratings = [Rating(f"i{i}", 1.0, "pass" if hit else "fail", float(hit)) for i, hit in enumerate(hits)] * 5
        found = agreement(ratings).sensitivity  # only right ones: nothing correlates, which would take time
        alone = proportion(5 * int(hits.sum()), 150)
        covered += found.low <= 0.8 <= found.high
        naive += alone.low <= 0.8 <= alone.high
    assert covered >= 34 > naive


def test_independent_ratings_keep_closed_intervals_and_nothing_constant_correlates() -> None:
    ratings = [Rating(f"i{i}", float(i % 2), "pass" if i % 2 else "fail", float(i % 2)) for i in range(20)]
    found = agreement(ratings)
    assert found.accuracy == proportion(20, 20) and found.kappa.low < 1.0
    twice = agreement(ratings * 2)  # every resample is perfect: no interval of width zero
    assert twice.accuracy.low == pytest.approx(proportion(20, 20).low) and twice.accuracy.distinct == 20
    always = agreement([Rating(f"i{i}", float(i % 2), "pass", 1.0) for i in range(20)])
    assert always.pearson.value is None and always.spearman.value is None and always.kappa.value == 0
    assert agreement([Rating("a", 1.0, "none", 0.0)]).accuracy.value == 0
