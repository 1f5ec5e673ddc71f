"""Asks a remote reward in a thread while the next images are drawn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

import numpy as np

from uni_train.core.errors import UserError
from uni_train.models.batches import ModelDown

Ask = Callable[[], np.ndarray]
"""The values of some images, float64 [N], NaN where the reward has none."""


class Background:
    """The questions of one reward in an epoch, asked in order by a daemon thread."""

    def __init__(self, name: str, patience: float) -> None:
        """patience: seconds that `values` waits."""
        self.name, self.patience = name, patience
        self._parts: list[tuple[int, Future[np.ndarray]]] = []
        self._queue: SimpleQueue[tuple[Ask, Future[np.ndarray]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=f"reward {name}", daemon=True).start()

    def ask(self, images: int, ask: Ask) -> None:
        """Ask about the next so many images.

        Raises:
            UserError: about those before, the reward has failed.
        """
        for _, part in self._parts:  # ModelDown may hold for this part alone: `values` decides
            if part.done() and not isinstance(part.exception(), ModelDown):
                part.result()
        future: Future[np.ndarray] = Future()
        self._parts.append((images, future))
        self._queue.put((ask, future))

    def values(self) -> np.ndarray:
        """All answers in order: float64 [N]. Where nobody could be asked about some of the images, NaN.

        Raises:
            UserError: the reward failed, could not be had at all, or is late.
        """
        until = time.monotonic() + self.patience
        values, down = [], []
        for number, (images, part) in enumerate(self._parts):
            try:
                values.append(part.result(max(until - time.monotonic(), 0.0)))
            except ModelDown as error:
                down.append(error)
                values.append(np.full(images, np.nan))
            except TimeoutError:
                counts = [count for count, _ in self._parts]
                raise UserError(
                    f"the reward {self.name} lacks {sum(counts[number:])} of {sum(counts)} images {self.patience:g} s "
                    "after the last was drawn",
                    f"See why it is slow, allow more connections, or raise rewards.{self.name}.patience.",
                ) from None
        if down and len(down) == len(self._parts):
            raise down[0]
        return np.concatenate(values)

    def close(self) -> None:
        """End the thread after its current question."""
        for _, part in self._parts:
            part.cancel()
        self._queue.put(None)

    def _work(self) -> None:
        while (question := self._queue.get()) is not None:
            ask, future = question
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(ask())
                except BaseException as error:
                    future.set_exception(error)
