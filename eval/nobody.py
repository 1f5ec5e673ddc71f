"""A judge in whose place nobody is asked: whether a benchmark would ask, and how much it would show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class JudgeAsked(Exception):
    """What `ask_nobody` raises in the place of asking a judge: how many letters and images it would be shown."""

    def __init__(self, letters: int, images: int) -> None:
        super().__init__("the judge would be asked now")
        self.letters, self.images = letters, images


async def ask_nobody(prompt: str, images: Sequence[bytes] = (), **_: Any) -> Any:
    """A `JudgeAsk` that finds out whether a benchmark would ask. Raises JudgeAsked."""
    raise JudgeAsked(len(prompt), len(images))
