"""teacher=reference: solutions in the place of what a model samples."""

from __future__ import annotations

from collections.abc import Sequence

from uni_train.data_gen.registry import task_of
from uni_train.eval.benchmark import Ask, Scored, with_image
from uni_train.eval.task_benchmark import TaskBenchmark, item_of


def solved(benchmark: TaskBenchmark, asks: Sequence[Ask]) -> list[Scored]:
    """The solutions of the items, in CoT with their thoughts, as if a model had sampled them."""
    answers = []
    for ask in asks:
        item = item_of(ask.case)
        sample = benchmark.prepared(ask, item.thought if ask.setting == "cot" else None)
        sample = with_image(sample, task_of(item).render(item, ask.seed))
        answers.append(Scored(sample, benchmark.check(sample)))
    return answers
