from __future__ import annotations

from pathlib import Path

import pytest

from tests.eval.judges.criteria import PNG, Criteria
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UserError
from uni_train.eval.benchmark import Case, Sample, Scored
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.judges import calibrate as known


def test_anchors_of_nano_are_drawn_and_shuffled() -> None:
    benchmark = UniSandbox(world="nano", n=4, sets=("math1", "mapping1"))
    anchors = known.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    right = [one for one in anchors if one.right]
    assert len(right) == len(benchmark.cases()) and len(anchors) == 2 * len(right)
    for anchor in anchors:
        verdict = benchmark.check(anchor.sample)
        assert verdict is not None and verdict.status == ("pass" if anchor.right else "fail")
    assert anchors == known.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    assert UniSandbox(n=1).reference(Case("a", "all", "Draw a portrait.")) is None  # nothing renders it


def test_references_from_a_folder(tmp_path: Path) -> None:
    benchmark = Criteria(3)
    with pytest.raises(UserError, match="no folder"):
        known.from_folder(tmp_path / "none")
    (tmp_path / "c0.png").write_bytes(PNG + b"0")
    (tmp_path / "c2.png").write_bytes(PNG + b"2")
    anchors = known.anchors_from_references(benchmark, benchmark.cases(), known.from_folder(tmp_path))
    found = [(one.sample.ask.case.id, one.kind) for one in anchors]
    assert found == [(case, kind) for case in ("c0", "c2") for kind in ("reference", "shuffled")]
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
