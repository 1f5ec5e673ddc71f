"""What an evaluation tells while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Bar(Protocol):
    def advance(self, by: int = 1, **figures: float) -> None: ...


class Progress(Protocol):
    """Who is told: `uni_train.cli.progress.ConsoleProgress`, for one."""

    def say(self, text: str) -> None: ...

    def bar(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Bar]: ...
