from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Case, Sample, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.generation import asks_of, cases_of, chunks, generate

CASES = [Case(f"c{i}", "math1", f"draw {i}") for i in range(5)]


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


def test_a_benchmark_that_repeats_cases_or_loses_samples_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = UniSandbox(Source(n=4, sets=("math1",)))
    cases = benchmark.cases()
    for kept, said in ((3, "3 samples of 4 asks"), (4, "unknown status 'lost'")):
        lost = [Sample(ask, status="lost") for ask in asks_of(cases, ["normal"])][:kept]
        monkeypatch.setattr(benchmark, "respond", lambda *asked, lost=lost: lost)
        with pytest.raises(ValueError, match=said):
            list(generate(benchmark, MagicMock(respond=None), chunks(asks_of(cases, ["normal"]), 4)))
    monkeypatch.setattr(benchmark, "cases", lambda: [*cases, *cases[:2]])
    with pytest.raises(UserError, match=r"unisandbox has several cases with the id 'maths1/test/.*', "):
        cases_of(benchmark)
