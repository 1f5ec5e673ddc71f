"""Numbers of agreement, and scores that they correct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from statsmodels.stats.inter_rater import cohens_kappa

from tests.eval.judges.criteria import NO, YES, Criteria, number
from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.schema import JudgeConfig
from uni_train.eval.benchmark import Scored
from uni_train.eval.judges import run
from uni_train.eval.judges.agreement import (
    Agreement,
    Calibration,
    Rating,
    agreement,
    citation,
    corrected,
    judged_scores,
    kappa,
    mean_of_two,
    sentence_of,
    table_of,
)
from uni_train.eval.judges.calibrate import Anchor, calibrate
from uni_train.eval.statistics import Estimate, proportion


def table(right: dict[str, int], wrong: dict[str, int]) -> dict[str, dict[str, int]]:
    none = {"pass": 0, "fail": 0, "none": 0}
    return {"right": none | right, "wrong": none | wrong}


def test_kappa_and_balanced_accuracy() -> None:
    # 35 of 50 agree where chance alone gives 25: (0.7 - 0.5) / (1 - 0.5).
    found = kappa(table({"pass": 20, "fail": 5}, {"pass": 10, "fail": 15}))
    assert found.value == pytest.approx(0.4) and found.n == 50 and found.low < 0.4 < found.high
    # No answers are disagreements: kappa falls.
    silent = kappa(table({"pass": 18, "fail": 5, "none": 2}, {"pass": 10, "fail": 15}))
    assert silent.value is not None and silent.value < 0.4
    perfect = kappa(table({"pass": 30}, {"fail": 30}))
    assert perfect.value == 1.0 and perfect.low == pytest.approx(2 * proportion(60, 60).low - 1)
    assert kappa(table({"pass": 9}, {})).value is None
    both, single = mean_of_two(proportion(8, 10), proportion(6, 10)), proportion(14, 20)
    assert both.value == pytest.approx(0.7) and both.n == 20
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
    widths = ((found.pearson, 0.12), (found.spearman, 0.13), (found.mae, 0.035))  # of 50 items, not of 200
    for estimate, width in widths:
        assert estimate.low < estimate.value < estimate.high
        assert estimate.high - estimate.low == pytest.approx(width, rel=0.35)
    both = (True, False)
    counts = [[sum(one.right == a and (one.outcome == "pass") == b for one in ratings) for b in both] for a in both]
    assert found.kappa.value == pytest.approx(cohens_kappa(counts).kappa)
    assert found.always_no.value == pytest.approx(sum(not one.right for one in ratings) / 200)
    assert found.accuracy.n == 200 and found.accuracy.distinct == 50
    assert Agreement.from_dict(found.to_dict()) == found == agreement(ratings)
    # Bins are those of ViGoR.
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
    silent = agreement(
        [Rating("a", 1.0, "none", 0.0), Rating("b", 0.0, "none", 0.0)]
    )  # nobody answered: no measurement
    assert silent.always_no.value == 0.5
    assert {getattr(silent, field.name).value for field in fields(silent) if field.name != "always_no"} == {None}
    assert str(silent.accuracy) == "none n=2"


def test_the_formula_of_rogan_and_gladen() -> None:
    # 0.6 * 0.9 + 0.4 * 0.2 = 0.62 are passed where 0.6 are right.
    found = corrected(proportion(620, 1000), proportion(90, 100), proportion(80, 100))
    assert found.value == pytest.approx(0.6) and found.low < 0.6 < found.high and found.n == 1000
    exact = proportion(10**9, 10**9)
    perfect = corrected(proportion(30, 100), exact, exact)
    assert perfect.value == pytest.approx(0.3) and perfect.low == pytest.approx(proportion(30, 100).low, abs=0.02)
    assert corrected(proportion(0, 50), proportion(9, 10), proportion(8, 10)).value == 0.0  # cut: it would be below 0
    with pytest.raises(ValueError, match="chance"):
        corrected(proportion(5, 10), proportion(5, 10), proportion(5, 10))


@pytest.mark.slow
def test_its_interval_holds_the_truth_as_often_as_it_says() -> None:
    draw, true, sens, spec, covered = np.random.default_rng(0), 0.4, 0.85, 0.75, 0
    for _ in range(300):
        raw = proportion(int(draw.binomial(200, true * sens + (1 - true) * (1 - spec))), 200)
        of_right, of_wrong = (proportion(int(draw.binomial(60, p)), 60) for p in (sens, spec))
        found = corrected(raw, of_right, of_wrong)
        covered += found.low <= true <= found.high
    assert 0.91 <= covered / 300 <= 0.99


def reply(asked: Asked) -> str:
    """Right about numbers that end in neither 8 nor 9; odd ones are right."""
    n = number(asked)
    return YES if (n % 2 == 1) != (n % 10 >= 8) else NO


def calibrated(folder: Path, right: Callable[[int], bool]) -> tuple[list[Scored], JudgeConfig, Calibration]:
    """What a judge says of 40 samples, the judge, and its calibration on these."""
    benchmark = Criteria(40)
    anchors = [Anchor(one, right(i), "program") for i, one in enumerate(benchmark.samples())]
    with JudgeServer(reply) as server:
        judge = JudgeConfig(model=f"{server.url}#judge")
        scored = run(benchmark.samples(), benchmark, judge, folder, store=folder)
        return scored, judge, calibrate(anchors, benchmark, judge, folder, store=folder)


@pytest.mark.slow
def test_scores_of_a_judge_stand_beside_corrected_ones(tmp_path: Path) -> None:
    scored, judge, found = calibrated(tmp_path / "good", lambda i: i % 2 == 1)
    before = judged_scores(scored, judge, None)
    assert before["refused"] == "uncalibrated" and before["scores"][0]["corrected"] is None
    # Of the 20 right ones 4 (9, 19, 29, 39) are failed, of the 20 wrong ones 4 passed: raw and true are both one half.
    after = judged_scores(scored[:20:2] + scored[1:8:2], judge, found)
    (cell,) = after["scores"]
    raw, fixed = Estimate.from_dict(cell["raw"]), Estimate.from_dict(cell["corrected"])
    assert raw.value == pytest.approx(6 / 14) and fixed.value == pytest.approx((6 / 14 - 0.2) / 0.6)
    shown = table_of(after, sentence_of(citation(tmp_path / "good", judge, Criteria(40))))
    assert shown.rows == (("direct", "all", raw, fixed),) and "calibrated on 40 verdicts" in shown.note
    assert "program 40" in shown.note and "kappa 0.60" in shown.note
    of_checks = judged_scores(scored, judge, replace(found, by_sample=found.overall))
    assert "single checks" in of_checks["refused"] and of_checks["scores"][0]["corrected"] is None
    about = judged_scores(*calibrated(tmp_path / "bad", lambda i: i % 4 < 2))
    assert about["refused"].startswith("refused: hardly better than chance (balanced accuracy 0.")
    assert table_of(about, "").rows[0][3] == about["refused"]
