"""A model that a run asks, in batches of the sizes that its recipe names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from uni_train.stages.work import in_batches

if TYPE_CHECKING:
    from uni_train.models.base import OnStep, Request, UnifiedModel


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
