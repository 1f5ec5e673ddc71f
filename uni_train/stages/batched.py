"""A model that a run asks, in batches of the sizes that its recipe names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from uni_train.models.batches import fitting
from uni_train.stages.work import in_batches

if TYPE_CHECKING:
    from uni_train.models.base import OnStep, Request, UnifiedModel


class Batched:
    """A model whose thoughts and answers are made `think_batch` at a time, thoughts at a `temperature` of their own."""

    def __init__(self, model: UnifiedModel, think_batch: int, temperature: float | None = None) -> None:
        self.name, self._model, self._size, self._temperature = model.name, model, think_batch, temperature

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str]:
        def think(some: Sequence[Request]) -> list[str]:
            return self._model.think(some, self._temperature, on_step)

        return [text for _, batch in in_batches(requests, self._size) for text in fitting(think, batch)]

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray]:
        return fitting(lambda some: self._model.draw(some, on_step), requests)

    def think_and_draw(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> tuple[list[str], list[np.ndarray]]:
        def both(some: Sequence[Request]) -> list[tuple[str, np.ndarray]]:
            return [*zip(*self._model.think_and_draw(some, self._temperature, on_step), strict=True)]

        pairs = [pair for _, batch in in_batches(requests, self._size) for pair in fitting(both, batch)]
        return [thought for thought, _ in pairs], [image for _, image in pairs]

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str]:
        def answer(some: Sequence[Request]) -> list[str]:
            return self._model.answer(some, on_step=on_step)

        return [text for _, batch in in_batches(requests, self._size) for text in fitting(answer, batch)]

    def compose(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> Sequence[Sequence[str | np.ndarray]]:
        return self._model.compose(requests, on_step)
