"""Asking a model about items of tasks, as a benchmark does: for sampling, and for evaluation while training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Ask, Benchmark, Respondent, Scored
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.unisandbox.cases import Questions, item_case
from uni_train.models.base import OnStep, Request, UnifiedModel
from uni_train.stages.work import in_batches


def about(items: Sequence[Item], setting: str) -> UniSandbox:
    """UniSandbox over these items, asked in one setting."""
    return UniSandbox(questions=Questions(tuple(item_case(item) for item in items), {}), settings=(setting,))


def asked(benchmark: Benchmark, seed: int, draws: int = 1) -> list[Ask]:
    """Every case `draws` times, in the benchmark's one setting; a seed follows from (run seed, prompt, setting, k)."""
    (setting,) = benchmark.settings
    return [
        Ask(case, setting, k, derive_seed(seed, case.id, setting, k))
        for case in benchmark.cases()
        for k in range(draws)
    ]


def draw(model: Respondent, benchmark: Benchmark, asks: Sequence[Ask]) -> list[Scored]:
    """What the model makes of them, each verified if a program can."""
    samples = benchmark.respond(model, asks)
    return [Scored(one, benchmark.check(one)) for one in samples]


class Batched:
    """A model whose thoughts and answers are made `think_batch` at a time, thoughts at a `temperature` of their own."""

    def __init__(self, model: UnifiedModel, think_batch: int, temperature: float | None = None) -> None:
        self.name, self._model, self._size, self._temperature = model.name, model, think_batch, temperature

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str]:
        batches = in_batches(requests, self._size)
        return [text for _, batch in batches for text in self._model.think(batch, self._temperature, on_step)]

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray]:
        return self._model.draw(requests, on_step)

    def think_and_draw(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> tuple[list[str], list[np.ndarray]]:
        thoughts: list[str] = []
        images: list[np.ndarray] = []
        for _, batch in in_batches(requests, self._size):
            said, drawn = self._model.think_and_draw(batch, self._temperature, on_step)
            thoughts += said
            images += drawn
        return thoughts, images

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str]:
        batches = in_batches(requests, self._size)
        return [text for _, batch in batches for text in self._model.answer(batch, on_step=on_step)]

    def compose(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> Sequence[Sequence[str | np.ndarray]]:
        return self._model.compose(requests, on_step)
