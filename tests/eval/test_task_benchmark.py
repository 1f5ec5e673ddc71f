"""Samples of items: what the model is asked, what becomes of its failures, and who verifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.eval.benchmarks.doubles import Model
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Item, Verdict
from uni_train.eval.sample import Sample, Scored
from uni_train.eval.task_benchmark import TaskBenchmark, cases_of_task, item_of


def knowing(items: Sequence[Item]) -> Model:
    """Thinks of each request; draws the first right, the second wrong, and fails on the third."""
    task, images = get_task(items[0].task, "nano"), []
    images += [task.render(items[0], 1), np.zeros_like(task.render(items[1], 1)), RuntimeError("no memory")]
    drawn = iter(images)
    return Model(think=lambda request: f"of {request.id}", draw=lambda request: next(drawn))


@pytest.mark.parametrize("setting", ["normal", "cot"])
@pytest.mark.parametrize("task", ["maths", "maze"])
def test_samples_are_asked_once_verified_and_keep_failures(task: str, setting: str) -> None:
    kind = get_task(task, "nano")
    items = kind.generate(3, next(iter(kind.sets)), "train", 0)
    model, benchmark = knowing(items), TaskBenchmark.from_items(items, setting)
    asks = benchmark.asks(7)
    assert [item_of(ask.case) for ask in asks] == items
    assert [ask.seed for ask in asks] == [derive_seed(7, item.id, setting, 0) for item in items]
    scored = benchmark.verified(model, asks)  # type: ignore[arg-type]
    draws = [request for skill, request in model.asked if skill == "draw"]
    assert [request.prompt for request in draws] == [item.prompt for item in items]
    assert [len(request.images) for request in draws] == [int(task == "maze")] * 3
    assert [sample.passed for sample in scored] == [True, False, False]
    assert scored[2].outcome == "generation_failed" and scored[2].sample.note == "no image: no memory"
    thought = f"of {items[0].id}" if setting == "cot" else None
    assert (scored[0].sample.thought, draws[0].thought) == (thought, thought)


def test_questions_of_one_form_are_one_cluster() -> None:
    def share(split: str) -> tuple[dict[str, Any], int]:
        cases = cases_of_task("maths", (1,), 60, split=split)
        benchmark = TaskBenchmark(cases, ("normal",))
        asks = benchmark.asks(0)
        passed = Verdict((Check("count", "pass"),))
        scored = [Scored(Sample(ask), passed if i % 3 else None) for i, ask in enumerate(asks)]
        return benchmark.scores(scored)["normal"]["math1"], len({item_of(case).facts["canonical"] for case in cases})

    repeated, forms = share("train")
    assert forms < 60 == repeated["n"] and repeated["distinct"] == forms
    alone, forms = share("test")
    assert forms == 60 and "distinct" not in alone
    assert alone["value"] == repeated["value"] and alone["high"] - alone["low"] < repeated["high"] - repeated["low"]


def test_draws_of_one_prompt_differ_in_their_seed_alone() -> None:
    items = get_task("maths", "nano").generate(1, 1, "train", 0)
    first, second = TaskBenchmark.from_items(items, "normal").asks(0, draws=2)
    assert first.case is second.case and (first.k, second.k) == (0, 1) and first.seed != second.seed
