"""The words that a way of asking adds to a prompt, and what it reads of a reply (`uni_train.eval.judges.ways`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

_ADDED = {
    "binary": "\n\nGive the answer at once, in exactly the form asked for above, without any reasoning around it.",
    "chain_of_thought": (
        "\n\nFirst reason step by step between <think> and </think>. After that give the answer in exactly the form "
        "asked for above."
    ),
    "confidence": (
        "\n\nAfter the answer, in exactly the form asked for above, add one last line: Confidence: N. N is a whole "
        "number from 0 (a guess) to 100 (certain)."
    ),
}
_FREE = ("chain_of_thought", "confidence")  # a server that holds the reply to a schema would leave no room for them
_THOUGHT = re.compile(r"<think>.*?</think>|\A\s*(?![{\[])(?:(?!<think>).)*</think>", re.DOTALL | re.IGNORECASE)
_CONFIDENCE = re.compile(r"\n?[ \t*]*Confidence:[ *]*(\d{1,3})[ %.*]*\s*\Z", re.IGNORECASE)


def worded(way: str, prompt: str) -> str:
    """The prompt with what the way adds to it."""
    return prompt + _ADDED.get(way, "")


def without_thought(text: str) -> str:
    """A reply without what is between <think> and </think>; many servers keep the opening mark to themselves."""
    return _THOUGHT.sub("", text).strip()


def schema_of(way: str, schema: Any) -> Any:
    """The schema that a server may hold the reply to; None where the way wants words beside it."""
    return None if way in _FREE else schema


def split(way: str, text: str) -> tuple[str, float | None]:
    """What the benchmark reads of a reply, and the confidence in [0, 1]. Raises ValueError: a confidence is missing."""
    if way != "confidence":
        return text, None
    found = _CONFIDENCE.search(text)
    if found is None or int(found[1]) > 100:
        raise ValueError('its last line must be "Confidence: N" with N from 0 to 100')
    return text[: found.start()], int(found[1]) / 100


def least_confidence(replies: Sequence[str]) -> float:
    """The lowest confidence, in [0, 1], that a judge's replies state; 0 where none does."""
    return min((int(found[1]) / 100 for one in replies if (found := _CONFIDENCE.search(one))), default=0.0)


def reader(way: str, parse: Callable[[str], Any] | None) -> Callable[[str], tuple[Any, float | None]]:
    """Reads a reply in a way: the benchmark's value, and the confidence. Raises ValueError where it does not answer."""

    def read(text: str) -> tuple[Any, float | None]:
        said, confidence = split(way, without_thought(text))
        return (said if parse is None else parse(said)), confidence

    return read
