"""Solutions in the place of samples (`teacher=reference`)."""

from __future__ import annotations

from uni_train.data_gen.registry import get_task
from uni_train.eval.task_benchmark import TaskBenchmark
from uni_train.recipes.stars.reference import solved


def test_solutions_have_thoughts_only_where_a_model_would_think() -> None:
    items = get_task("mapping", "nano").generate(2, 1, "train", 0)
    for mode in ("cot", "normal"):
        benchmark = TaskBenchmark.from_items(items, mode)
        answers = solved(benchmark, benchmark.asks(0))
        thoughts = [item.thought if mode == "cot" else None for item in items]
        assert [answer.sample.thought for answer in answers] == thoughts
        assert all(answer.passed for answer in answers) and all(thoughts) == (mode == "cot")
