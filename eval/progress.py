"""The progress interface of an evaluation: messages and bars."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Bar(Protocol):
    def advance(self, by: int = 1, **figures: float) -> None: ...


class Progress(Protocol):
    """Receives messages and bars; `uni_train.console.progress.ConsoleProgress` prints them."""

    def say(self, text: str) -> None: ...

    def bar(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Bar]: ...


class Silent:
    """Discards everything."""

    def say(self, text: str) -> None:
        return

    def bar(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Bar]:
        return nullcontext(_SilentBar())


class _SilentBar:
    def advance(self, by: int = 1, **figures: float) -> None:
        return
