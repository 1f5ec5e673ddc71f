"""Limits of `uni_train serve`: size and time of a request, length of the queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The defaults suit a large model with many clients; options of `serve` replace them.

    Attributes:
        body: MiB of a request's body. images: images of a request. megapixels: million pixels of them together.
        words: of a prompt and its thought, times the replies that are asked for (`n`); a word of more than eight
            letters counts as several, so that text without spaces is limited too.
        seconds: from a request's first byte to its reply. queue: requests at once, the next one meets a 429.
    """

    body: float = 32.0
    images: int = 16
    megapixels: float = 32.0
    words: int = 4000
    seconds: float = 300.0
    queue: int = 256

    @property
    def body_bytes(self) -> int:
        return round(self.body * (1 << 20))

    @property
    def pixels(self) -> int:
        return round(self.megapixels * 1e6)


LETTERS = 8
"""Letters of the longest text that counts as one word."""


def words_of(text: str) -> int:
    """Words of a text as `Limits.words` counts them."""
    return sum(-(-len(word) // LETTERS) for word in text.split())
