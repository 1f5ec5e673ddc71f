"""nano judges pictures of its own world over a real connection: `uni_train serve`, asked in its own dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import served
from uni_train.config.schema import JudgeConfig
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.judges import anchors as known
from uni_train.eval.judges import run
from uni_train.eval.judges.calibrating import calibrate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("serve") / "log") as (address, _):
        yield address


def test_nano_agrees_with_the_verifier_on_references(url: str, tmp_path: Path) -> None:
    benchmark = UniSandbox(world="nano", n=5, sets=("math1", "mapping2"), verifier="judge")
    anchors = known.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    judge = JudgeConfig(model=f"{url}#nano", dialect="nano", revision="shipped", connections=8)
    found = calibrate(anchors, benchmark, judge, tmp_path / "calibration", store=tmp_path / "store")
    assert found.n == 30 and found.overall.balanced_accuracy.value is not None
    assert found.overall.balanced_accuracy.value >= 0.9
    samples = [anchor.sample for anchor in anchors]
    scored = run(samples, benchmark, judge, tmp_path / "evaluation", store=tmp_path / "store")
    assert all(one.by == "nano" and one.replies[0].startswith("Caption:") for one in scored)


def test_words_that_nano_does_not_know_fail_their_question_alone(url: str, tmp_path: Path) -> None:
    benchmark = UniSandbox(world="nano", n=2, sets=("math1",), verifier="judge")
    samples = [
        one.sample
        for one in known.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
        if one.right
    ]
    scored = run(samples, benchmark, JudgeConfig(model=f"{url}#nano", connections=8), tmp_path)  # asked as papers ask
    assert {one.outcome for one in scored} == {"judge_failed"}
    assert all("400: nano does not know the word" in one.replies[0] for one in scored)
