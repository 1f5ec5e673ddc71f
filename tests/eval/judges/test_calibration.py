from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from data_gen.task import Check, Verdict
from eval.benchmark import Case, Sample, Scored
from eval.benchmarks.unisandbox import UniSandbox
from eval.judges import JudgeConfig, calibration, run
from eval.judges import anchors as known
from eval.judges import calibrating as cal
from eval.statistics import Estimate, proportion
from tests.eval.judges.criteria import PNG, Criteria
from tests.eval.judges.server import Asked, JudgeServer
from uni_train.errors import UserError


def test_kappa_and_balanced_accuracy() -> None:
    # 35 of 50 agree where chance alone gives 25: (0.7 - 0.5) / (1 - 0.5).
    table = {"right": {"pass": 20, "fail": 5, "none": 0}, "wrong": {"pass": 10, "fail": 15, "none": 0}}
    found = cal.kappa(table)
    assert found.value == pytest.approx(0.4) and found.n == 50 and found.low < 0.4 < found.high
    # No answers are disagreements: kappa falls.
    assert cal.kappa({**table, "right": {"pass": 18, "fail": 5, "none": 2}}).value < 0.4  # type: ignore[operator]
    perfect = cal.kappa({"right": {"pass": 30, "fail": 0, "none": 0}, "wrong": {"pass": 0, "fail": 30, "none": 0}})
    assert perfect.value == 1.0 and perfect.low == pytest.approx(2 * proportion(60, 60).low - 1)
    assert cal.kappa({"right": {"pass": 9, "fail": 0, "none": 0}, "wrong": dict.fromkeys(cal._SAID, 0)}).value is None
    both = cal.mean_of_two(proportion(8, 10), proportion(6, 10))
    assert both.value == pytest.approx(0.7) and both.n == 20
    single = proportion(14, 20)
    assert 0 < both.low < both.high < 1 and both.high - both.low == pytest.approx(single.high - single.low, rel=0.15)


def test_anchors_of_nano_are_drawn_and_shuffled() -> None:
    benchmark = UniSandbox(world="nano", n=4, sets=("math1", "mapping1"))
    anchors = known.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    right = [one for one in anchors if one.right]
    assert len(right) == len(benchmark.cases()) and len(anchors) == 2 * len(right)
    for anchor in anchors:
        verdict = benchmark.check(anchor.sample)
        assert verdict is not None and verdict.status == ("pass" if anchor.right else "fail")
    assert anchors == known.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)


def test_references_from_a_folder(tmp_path: Path) -> None:
    benchmark = Criteria(3)
    with pytest.raises(UserError, match="no folder"):
        known.from_folder(tmp_path / "none")
    (tmp_path / "c0.png").write_bytes(PNG + b"0")
    (tmp_path / "c2.png").write_bytes(PNG + b"2")
    anchors = known.anchors_from_references(benchmark, benchmark.cases(), known.from_folder(tmp_path))
    assert [(one.sample.ask.case.id, one.kind) for one in anchors] == [
        ("c0", "reference"), ("c0", "shuffled"), ("c2", "reference"), ("c2", "shuffled"),
    ]  # fmt: skip
    assert anchors[1].sample.image == PNG + b"2"


def test_a_reference_that_is_wrong_is_named(tmp_path: Path) -> None:
    class Checked(Criteria):
        def check(self, sample: Sample) -> Verdict | None:
            return Verdict((Check("seen", "fail", "nothing there"),))

    with pytest.raises(UserError, match="c0 is not right: nothing there"):
        known.anchors_from_references(Checked(2), Checked(2).cases(), lambda case: PNG)


def test_samples_that_programs_have_read_become_anchors() -> None:
    samples = Criteria(20).samples()
    verdicts = {True: Verdict((Check("x", "pass"),)), False: Verdict((Check("x", "fail"),))}
    scored = [Scored(sample, verdicts[i < 3]) for i, sample in enumerate(samples)]
    scored += [Scored(samples[0], Verdict((Check("x", "unreadable"),))), Scored(samples[0], verdicts[True], "judge")]
    assert len(known.anchors_from_programs(scored)) == 20
    few = known.anchors_from_programs(scored, n=8)
    assert len(few) == 8 and sum(one.right for one in few) == 3  # all there are, then the others


def test_a_judge_is_measured_and_evaluations_cite_it(tmp_path: Path) -> None:
    def lenient(asked: Asked) -> str:
        """Right but for one reference that it cannot read, and one wrong picture that it lets pass."""
        shown = int(re.search(r"shows (\d+)", asked.words)[1])  # type: ignore[index]
        if shown == 1:
            return "eyes"
        return f"<answer>{'Yes' if shown % 2 or shown == 2 else 'No'}</answer>"

    benchmark, store = Criteria(10), tmp_path / "store"
    anchors = [known.Anchor(sample, bool(i % 2), "reference") for i, sample in enumerate(benchmark.samples())]
    with JudgeServer(lenient) as server:
        judge = JudgeConfig("judge", server.url)
        assert calibration.find(store, judge, "criteria") is None
        found = cal.calibrate(anchors, benchmark, judge, tmp_path / "calibration", store=store)
        assert found.counts["reference"] == {
            "right": {"pass": 4, "fail": 0, "none": 1},
            "wrong": {"pass": 1, "fail": 4, "none": 0},
        }
        assert found.accuracy == proportion(8, 10) and found.balanced_accuracy.value == pytest.approx(0.8)
        assert [one["id"] for one in found.disagreements] == ["c1", "c2"]
        assert calibration.find(store, judge, "criteria") == found
        asked = len(server.asked)
        assert cal.calibrate(anchors, benchmark, judge, tmp_path / "calibration", store=store).counts == found.counts
        assert len(server.asked) == asked
        run(benchmark.samples(), benchmark, judge, tmp_path / "evaluation", store=store)
        assert len(server.asked) == asked  # the store is shared
        record = json.loads((tmp_path / "evaluation" / "judge" / "record.json").read_text())
        (part,) = record["parts"].values()
        assert part["calibration"]["n"] == 10 and part["calibration"]["same_questions"]
        assert Estimate.from_dict(part["calibration"]["kappa"]) == found.kappa
    other = replace(judge, temperature=1.0)
    assert calibration.find(store, other, "criteria") is None  # another judge is not calibrated


def test_one_side_alone_measures_nothing(tmp_path: Path) -> None:
    anchors = [known.Anchor(sample, True, "reference") for sample in Criteria(2).samples()]
    with pytest.raises(UserError, match="known to be wrong"):
        cal.calibrate(anchors, Criteria(2), JudgeConfig("judge", "http://127.0.0.1:9/v1"), tmp_path, store=tmp_path)


def test_a_case_that_nothing_renders_has_no_reference() -> None:
    assert UniSandbox(n=1).reference(Case("a", "all", "Draw a portrait.")) is None
