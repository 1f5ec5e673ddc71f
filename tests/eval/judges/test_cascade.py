from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eval.judges.criteria import NO, YES, Criteria, number
from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.schema import JudgeConfig
from uni_train.errors import UsageError
from uni_train.eval.judges import agreement as calibration
from uni_train.eval.judges import calibrate as known
from uni_train.eval.judges import run
from uni_train.eval.judges.calibrate import calibrate
from uni_train.eval.statistics import Estimate

NOBODY = "http://127.0.0.1:9/v1"
BENCHMARK = Criteria(20)
WRONG = {"a": {3, 4}, "b": {4, 5, 6}, "large": {6, 7}}
"""Judge -> the numbers that it gets wrong; odd ones are right."""


def reply(asked: Asked) -> str:
    right = (number(asked) % 2 == 1) != (number(asked) in WRONG[asked.body["model"]])
    return YES if right else NO


def models(server: JudgeServer) -> Counter[str]:
    return Counter(one.body["model"] for one in server.asked)


def cascade(server: JudgeServer, **settings: Any) -> JudgeConfig:
    small = tuple(JudgeConfig(model=f"{server.url}#{name}", **settings) for name in ("a", "b"))
    return JudgeConfig(model=f"{server.url}#large", small=small)


@pytest.mark.slow
def test_the_large_judge_is_asked_where_small_ones_disagree(tmp_path: Path) -> None:
    with JudgeServer(reply) as server:
        judge = cascade(server)
        samples = [*BENCHMARK.samples(), replace(BENCHMARK.samples()[0], status="generation_failed")]
        scored = run(samples, BENCHMARK, judge, tmp_path)
        assert models(server) == {"a": 20, "b": 20, "large": 3}
        assert run(samples, BENCHMARK, judge, tmp_path) == scored and len(server.asked) == 43
    by = Counter(one.by for one in scored[:-1])
    assert by == {"a+b": 17, "large": 3} and scored[-1].outcome == "generation_failed"
    wrong = [i for i, one in enumerate(scored[:-1]) if one.passed != (i % 2 == 1)]
    assert wrong == [4, 6]  # where both small ones err, and where the large one does
    assert len(scored[0].replies) == 2 and len(scored[5].replies) == 1


@pytest.mark.slow
def test_draws_that_differ_and_words_of_doubt_go_to_the_large_judge(tmp_path: Path) -> None:
    seen = Counter[int]()

    def doubtful(asked: Asked) -> str:
        said = reply(asked)
        if asked.body["model"] == "large":
            return said
        if "Confidence" in asked.last:
            return f"{said}\nConfidence: {60 if number(asked) < 5 else 90}"
        seen[number(asked)] += 1
        return {YES: NO, NO: YES}[said] if number(asked) == 0 and seen[0] == 2 else said

    with JudgeServer(doubtful) as server:
        small = JudgeConfig(model=f"{server.url}#a", way="majority", draws=3, connections=1)
        judge = JudgeConfig(model=f"{server.url}#large", small=(small,))
        by = Counter(one.by for one in run(BENCHMARK.samples(), BENCHMARK, judge, tmp_path / "drawn"))
        # 0 is in doubt after its second draw, and is spared the third.
        assert by == {"a": 19, "large": 1} and models(server) == {"a": 59, "large": 1}
        heats = {(asked.body["model"], asked.body["temperature"]) for asked in server.asked}
        assert heats == {("a", 0.7), ("large", 0.0)}  # at 0 all draws would be one reply
        unsure = JudgeConfig(model=f"{server.url}#large", small=(replace(small, way="confidence", draws=1),))
        by = Counter(one.by for one in run(BENCHMARK.samples(), BENCHMARK, unsure, tmp_path / "unsure"))
        assert by == {"a": 15, "large": 5}
        brave = replace(unsure, sure=0.5)
        assert {one.by for one in run(BENCHMARK.samples(), BENCHMARK, brave, tmp_path / "brave")} == {"a"}


@pytest.mark.slow
def test_its_saving_and_bias_are_measured_on_known_samples(tmp_path: Path) -> None:
    anchors = [known.Anchor(one, i % 2 == 1, "program") for i, one in enumerate(BENCHMARK.samples())]
    with JudgeServer(reply) as server:
        judge = cascade(server)
        found = calibrate(anchors, BENCHMARK, judge, tmp_path, store=tmp_path / "store")
    about = found.cascade
    assert about is not None and about["saving"] == pytest.approx(20 / 3) and about["asked"]["value"] == 3 / 20
    # The large judge passes 6 and not 7, the cascade 4 and 6: of twenty, one more.
    bias, error, large = (Estimate.from_dict(about[name]) for name in ("bias", "error", "large_error"))
    assert bias.value == pytest.approx(2 / 20) and bias.low < 0 < bias.high
    assert error.value == pytest.approx(2 / 20) and large.value == pytest.approx(0)
    store = tmp_path / "store"
    assert calibration.find(store, judge, "criteria") == found
    assert calibration.find(store, judge.small[0], "criteria") is None
    cited = calibration.sentence_of(calibration.citation(store, judge, BENCHMARK))
    assert "the large judge was asked about 0.15" in cited and "bias of 0.10" in cited
    assert calibration.citation(store, replace(judge, small=()), BENCHMARK) is None  # alone it is another judge


def test_cascades_that_cannot_be_meant() -> None:
    one, large = (JudgeConfig(model=f"{NOBODY}#{name}") for name in ("a", "large"))
    ranked = JudgeConfig(model=f"{NOBODY}#b", way="tournament")
    for small, problem in (
        ((one,), "never in doubt"),
        ((one, large), "is called large"),
        ((one, ranked), "one by one"),
    ):
        with pytest.raises(UsageError, match=problem):
            replace(large, small=small)


def test_a_small_judge_that_fails_settles_nothing(tmp_path: Path) -> None:
    with JudgeServer(lambda asked: "hm" if asked.body["model"] == "a" else reply(asked)) as server:
        scored = run(BENCHMARK.samples()[:5], BENCHMARK, cascade(server, attempts=1), tmp_path)
        assert models(server) == {"a": 5, "large": 5} and {one.by for one in scored} == {"large"}
