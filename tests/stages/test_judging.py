"""Which samples of a stage the run's judge is asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Sample, Scored
from uni_train.eval.task_benchmark import TaskBenchmark
from uni_train.recipes.stars import judge as judge_filter
from uni_train.stages import judging

SEEN, READ = Verdict((Check("caption", "fail"),)), Verdict((Check("count", "pass"),))


def test_what_a_program_has_checked_is_not_judged_and_a_filter_is_asked_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = TaskBenchmark.from_items(get_task("maths", "everyday").generate(3, 1, "train", 0), "normal")
    drawn, failed = Sample(benchmark.asks(0)[0], parts=(b"png",)), Sample(benchmark.asks(0)[1], "generation_failed")
    scored = [Scored(drawn, READ), Scored(failed), Scored(replace(drawn, ask=benchmark.asks(0)[2]))]
    asked: list[tuple[str, int]] = []

    def judge(work: Any, folder: Path, samples: list[Sample], by: TaskBenchmark) -> list[Scored]:
        asked.append((by.name, len(samples)))
        return [Scored(sample, None if by.name == "stars_filter" else SEEN, replies=("hm",)) for sample in samples]

    monkeypatch.setattr(judging, "judge_samples", judge)
    work: Any = None
    found = judging.judged(work, Path(), benchmark, scored)
    assert [one.verdict for one in found] == [READ, None, SEEN]
    kept = judge_filter.judged(work, Path(), found)
    assert [one.verdict for one in kept] == [READ, None, SEEN], "a filter decides nothing but what is kept"
    assert {one.filter_verdict for one in kept} == {Verdict((Check("filter", "unreadable", "hm"),))}
    assert asked == [("task", 1), ("stars_filter", 3)]
