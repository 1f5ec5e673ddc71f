"""nano judges pictures of its own world over a real connection: `uni_train serve`, asked in its own dialect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.served import served
from uni_train.config.schema import JudgeConfig
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.judges import calibrate as known
from uni_train.eval.judges import run
from uni_train.eval.judges.calibrate import calibrate


@pytest.mark.slow
def test_nano_agrees_with_the_verifier_on_references(tmp_path: Path) -> None:
    benchmark = UniSandbox(world="nano", n=5, sets=("math1", "mapping2"), verifier="judge")
    anchors = known.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    samples = [anchor.sample for anchor in anchors]
    with served(tmp_path / "log") as (url, _):
        judge = JudgeConfig(model=f"{url}#nano", dialect="nano", revision="shipped", connections=8)
        found = calibrate(anchors, benchmark, judge, tmp_path / "calibration", store=tmp_path / "store")
        scored = run(samples, benchmark, judge, tmp_path / "evaluation", store=tmp_path / "store")
    assert found.n == 30 and found.overall.balanced_accuracy.value is not None
    assert found.overall.balanced_accuracy.value >= 0.9
    assert all(one.by == "nano" and one.replies[0].startswith("Caption:") for one in scored)
