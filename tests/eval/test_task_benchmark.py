"""Samples of items: what the model is asked, what becomes of its failures, and who verifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.sample import Sample, Scored
from uni_train.eval.task_benchmark import TaskBenchmark, cases_of_task, item_of
from uni_train.models.base import Request


class Knowing:
    """Draws the right image of every second request, thinks of it, and fails on the last."""

    name = "knowing"

    def __init__(self, task: str, n: int) -> None:
        self.task = get_task(task, "nano")
        self.items = self.task.generate(n, next(iter(self.task.sets)), "train", 0)
        self.asked: list[Request] = []

    def draw(self, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
        self.asked += requests
        items = {item.id: item for item in self.items}
        images: list[Any] = [self.task.render(items[request.id], 1) for request in requests]
        images[1::2] = [np.zeros_like(image) for image in images[1::2]]
        return [*images[:-1], RuntimeError("no memory")]

    def think(self, requests: Sequence[Request], *, on_step: Any = None) -> list[str]:
        return [f"of {request.id}" for request in requests]


@pytest.mark.parametrize("setting", ["normal", "cot"])
@pytest.mark.parametrize("task", ["maths", "maze"])
def test_samples_are_asked_once_verified_and_keep_failures(task: str, setting: str) -> None:
    model = Knowing(task, 3)
    benchmark = TaskBenchmark.from_items(model.items, setting)
    asks = benchmark.asks(7)
    assert [item_of(ask.case) for ask in asks] == model.items
    assert [ask.seed for ask in asks] == [derive_seed(7, item.id, setting, 0) for item in model.items]
    scored = benchmark.verified(model, asks)  # type: ignore[arg-type]
    assert [request.prompt for request in model.asked] == [item.prompt for item in model.items]
    assert [len(request.images) for request in model.asked] == [int(task == "maze")] * 3
    assert [sample.passed for sample in scored] == [True, False, False]
    assert scored[2].outcome == "generation_failed" and scored[2].sample.note == "no image: no memory"
    thought = f"of {model.items[0].id}" if setting == "cot" else None
    assert (scored[0].sample.thought, model.asked[0].thought) == (thought, thought)


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
    model = Knowing("maths", 1)
    first, second = TaskBenchmark.from_items(model.items, "normal").asks(0, draws=2)
    assert first.case is second.case and (first.k, second.k) == (0, 1) and first.seed != second.seed
