from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.eval.judges.criteria import NO, YES, Criteria, number
from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.schema import JudgeConfig
from uni_train.eval.benchmark import Scored
from uni_train.eval.judges import agreement as calibration
from uni_train.eval.judges import calibrate as known
from uni_train.eval.judges import run
from uni_train.eval.judges.agreement import Calibration, corrected, judged_scores, table_of
from uni_train.eval.judges.calibrate import calibrate
from uni_train.eval.statistics import Estimate, proportion


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


def calibrated(folder: Path, right: Callable[[int], bool]) -> tuple[JudgeConfig, list[Scored], Calibration]:
    """A judge, what it says of 40 samples, and its calibration on these."""
    benchmark = Criteria(40)
    anchors = [known.Anchor(one, right(i), "program") for i, one in enumerate(benchmark.samples())]
    with JudgeServer(reply) as server:
        judge = JudgeConfig(model=f"{server.url}#judge")
        scored = run(benchmark.samples(), benchmark, judge, folder, store=folder / "store")
        return judge, scored, calibrate(anchors, benchmark, judge, folder, store=folder / "store")


@pytest.mark.slow
def test_scores_of_a_judge_stand_beside_corrected_ones(tmp_path: Path) -> None:
    judge, scored, found = calibrated(tmp_path, lambda i: i % 2 == 1)
    before = judged_scores(scored, judge, None)
    assert before["refused"] == "uncalibrated" and before["scores"][0]["corrected"] is None
    # Of the 20 right ones 4 (9, 19, 29, 39) are failed, of the 20 wrong ones 4 passed: raw and true are both one half.
    after = judged_scores(scored[:20:2] + scored[1:8:2], judge, found)
    (cell,) = after["scores"]
    raw, fixed = Estimate.from_dict(cell["raw"]), Estimate.from_dict(cell["corrected"])
    assert raw.value == pytest.approx(6 / 14) and fixed.value == pytest.approx((6 / 14 - 0.2) / 0.6)
    table = table_of(after, calibration.sentence_of(calibration.citation(tmp_path / "store", judge, Criteria(40))))
    assert table.rows == (("direct", "all", raw, fixed),) and "calibrated on 40 verdicts" in table.note
    assert "program 40" in table.note and "kappa 0.60" in table.note
    of_checks = judged_scores(scored, judge, replace(found, by_sample=found.overall))
    assert "single checks" in of_checks["refused"] and of_checks["scores"][0]["corrected"] is None


@pytest.mark.slow
def test_a_judge_that_is_hardly_better_than_chance_corrects_nothing(tmp_path: Path) -> None:
    judge, scored, found = calibrated(tmp_path, lambda i: i % 4 < 2)
    about = judged_scores(scored, judge, found)
    assert about["refused"].startswith("refused: hardly better than chance (balanced accuracy 0.")
    assert table_of(about, "").rows[0][3] == about["refused"]
