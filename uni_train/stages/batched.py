"""A model that a run asks, in batches of the sizes that its recipe names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from uni_train.models.base import ImageGenerator, InterleavedGenerator, TextGenerator, UnifiedModel, expect_skill
from uni_train.models.batches import fitting
from uni_train.stages.work import in_batches

if TYPE_CHECKING:
    from uni_train.models.base import OnStep, Request

T = TypeVar("T")


class Batched:
    """A model whose thoughts and answers are made `think_batch` at a time, thoughts at a `temperature` of their own."""

    def __init__(self, model: UnifiedModel, think_batch: int, temperature: float | None = None) -> None:
        self.name, self._model, self._size, self._temperature = model.name, model, think_batch, temperature

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str]:
        writer = expect_skill(self._model, TextGenerator)
        return self._made(lambda some: writer.think(some, self._temperature, on_step), requests)

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str]:
        return self._made(partial(expect_skill(self._model, TextGenerator).answer, on_step=on_step), requests)

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray]:
        return fitting(partial(expect_skill(self._model, ImageGenerator).draw, on_step=on_step), requests)

    def think_and_draw(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> tuple[list[str], list[np.ndarray]]:
        drawer = expect_skill(self._model, ImageGenerator)

        def both(some: Sequence[Request]) -> list[tuple[str, np.ndarray]]:
            return [*zip(*drawer.think_and_draw(some, self._temperature, on_step), strict=True)]

        pairs = self._made(both, requests)
        return [thought for thought, _ in pairs], [image for _, image in pairs]

    def compose(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> Sequence[Sequence[str | np.ndarray]]:
        return expect_skill(self._model, InterleavedGenerator).compose(requests, on_step)

    def _made(self, make: Callable[[Sequence[Request]], Sequence[T]], requests: Sequence[Request]) -> list[T]:
        return [reply for _, batch in in_batches(requests, self._size) for reply in fitting(make, batch)]
