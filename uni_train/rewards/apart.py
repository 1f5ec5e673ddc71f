"""Asks a remote reward in a thread while the next images are drawn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

import numpy as np

from uni_train.errors import UserError
from uni_train.models.batches import ModelDown

Ask = Callable[[], np.ndarray]
"""The values of some images, float64 [N], NaN where the reward has none."""


class Apart:
    """The questions of one reward in an epoch, asked in order by a daemon thread."""

    def __init__(self, name: str, patience: float) -> None:
        """patience: seconds that `values` waits."""
        self.name, self.patience = name, patience
        self._parts: list[tuple[int, Future[np.ndarray]]] = []
        self._asks: SimpleQueue[tuple[Ask, Future[np.ndarray]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=f"reward {name}", daemon=True).start()

    def ask(self, pictures: int, ask: Ask) -> None:
        """Ask about the next so many images.

        Raises:
            UserError: about those before, the reward has failed.
        """
        for _, part in self._parts:
            if part.done():
                self._value(part)
        future: Future[np.ndarray] = Future()
        self._parts.append((pictures, future))
        self._asks.put((ask, future))

    def values(self) -> np.ndarray:
        """All answers in order: float64 [N]. Where nobody could be asked about some of the images, NaN.

        Raises:
            UserError: the reward failed, could not be had at all, or is late.
        """
        until = time.monotonic() + self.patience
        found, down = [], []
        for number, (pictures, part) in enumerate(self._parts):
            try:
                found.append(self._value(part, max(until - time.monotonic(), 0.0)))
            except ModelDown as error:
                down.append(error)
                found.append(np.full(pictures, np.nan))
            except TimeoutError:
                late = sum(count for count, _ in self._parts[number:])
                total = sum(count for count, _ in self._parts)
                raise UserError(
                    f"the reward {self.name} lacks {late} of {total} images {self.patience:g} s after the last was "
                    "drawn",
                    f"See why it is slow, allow more judge.connections, or raise rewards.{self.name}.patience.",
                ) from None
        if down and len(down) == len(self._parts):
            raise down[0]
        return np.concatenate(found)

    def close(self) -> None:
        """End the thread after its current question."""
        for _, part in self._parts:
            part.cancel()
        self._asks.put(None)

    def _value(self, part: Future[np.ndarray], seconds: float | None = None) -> np.ndarray:
        if seconds is None and isinstance(part.exception(), ModelDown):
            return np.empty(0)  # perhaps for this part alone: `values` decides
        return part.result(seconds)

    def _work(self) -> None:
        while (asked := self._asks.get()) is not None:
            ask, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(ask())
            except BaseException as error:
                future.set_exception(error)
