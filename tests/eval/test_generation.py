from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from uni_train.errors import UsageError, UserError
from uni_train.eval.benchmark import Ask, Case, Sample, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.generation import asks_of, cases_of, chunks, generate, settings_of

CASES = [Case(f"c{i}", "math1", f"draw {i}") for i in range(5)]


class Twice(UniSandbox):
    """Files with the same row twice."""

    def cases(self) -> Sequence[Case]:
        return [*super().cases(), *super().cases()[:2]]


class Forgetful(UniSandbox):
    def respond(self, model: Any, asks: Sequence[Ask], on_step: Any = None) -> list[Sample]:
        return [Sample(ask, status="lost") for ask in asks[: self.kept]]

    kept = 3


def test_seeds_follow_from_run_case_and_draw_alone() -> None:
    asks = asks_of(CASES, ["normal", "cot"], k=3, seed=1)
    seeds = {(ask.case.id, ask.setting, ask.k): ask.seed for ask in asks}
    assert len(seeds) == len(asks) == 30
    assert len(set(seeds.values())) == 15  # the settings of a case share theirs
    assert all(seeds[case.id, "normal", k] == seeds[case.id, "cot", k] for case in CASES for k in range(3))
    assert all(0 <= seed < 2**31 for seed in seeds.values())
    alone = asks_of(CASES[3:4], ["cot"], k=1, seed=1)
    assert alone[0].seed == seeds["c3", "cot", 0]  # a subset asks the same
    assert asks_of(CASES, ["normal"], seed=2)[0].seed != asks[0].seed


def test_a_subset_is_whole_pairs_of_every_set() -> None:
    benchmark = UniSandbox(Source(n=20, sets=("math1", "mapping1")))
    cases = cases_of(benchmark, subset=12, seed=0)
    assert {case.set for case in cases} == {"math1", "mapping1"} and len(cases) <= 12
    pairs = [case.cluster for case in cases if case.set == "mapping1"]
    assert pairs and all(pairs.count(pair) == 2 for pair in pairs)
    assert [case.id for case in cases] == [case.id for case in cases_of(benchmark, subset=12, seed=0)]
    assert set(case.id for case in cases) < set(case.id for case in cases_of(benchmark))
    assert settings_of(benchmark, ["cot", "direct"]) == ("cot",)  # those that it has
    with pytest.raises(UsageError, match="has no set math9"):
        UniSandbox.open(Source(sets=("math9",)))


def test_duplicate_ids_are_named() -> None:
    with pytest.raises(UserError, match=r"unisandbox has several cases with the id 'maths1/test/.*', "):
        cases_of(Twice(Source(n=4, sets=("math1",))))


def test_a_benchmark_that_loses_samples_is_caught() -> None:
    benchmark = Forgetful(Source(n=4, sets=("math1",)))
    asks = asks_of(benchmark.cases(), ["normal"])
    with pytest.raises(ValueError, match="3 samples of 4 asks"):
        list(generate(benchmark, None, chunks(asks, 4)))  # type: ignore[arg-type]
    benchmark.kept = 4
    with pytest.raises(ValueError, match="unknown status 'lost'"):
        list(generate(benchmark, None, chunks(asks, 4)))  # type: ignore[arg-type]
