"""Trivial strategies for maths: answers from the numbers of a prompt, without working anything out.

They read prompts of both worlds and the published ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from uni_train.data_gen.objects import LEAST, MOST
from uni_train.data_gen.task import Strategy

NUMBER_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_NUMBER = re.compile(rf"\d+|(?<![A-Za-z])(?:{'|'.join(NUMBER_WORDS)})(?![A-Za-z])", re.IGNORECASE)


def numbers(text: str) -> list[int]:
    """The numbers of a prompt as they stand there, in digits or words: "twenty-one" and "twenty one" are 21."""
    values: list[int] = []
    end = 0
    for match in _NUMBER.finditer(text):
        word = match.group().lower()
        if len(word) > 100:  # digits that stand for no number of things, and that Python may refuse
            continue
        value = NUMBER_WORDS.get(word)
        if value is not None and 0 < value < 10 and values and values[-1] >= 20 and values[-1] % 10 == 0:
            between = text[end : match.start()]
            if between in (" ", "-") and text[:end][-1:].isalpha():
                values[-1] += value
                end = match.end()
                continue
        values.append(int(word) if value is None else value)
        end = match.end()
    return values


def _count(pick: Callable[[list[int]], int], least: int = 1) -> Callable[[str], int | None]:
    """A strategy on the numbers of a prompt, clipped to what can be asked for; None below `least` numbers."""

    def answer(text: str) -> int | None:
        values = numbers(text)
        return min(max(pick(values), LEAST), MOST) if len(values) >= least else None

    return answer


STRATEGIES = (
    Strategy("first number", _count(lambda values: values[0])),
    Strategy("second number", _count(lambda values: values[1], least=2)),
    Strategy("last number", _count(lambda values: values[-1])),
    Strategy("largest number", _count(max)),
    Strategy("smallest number", _count(min)),
    Strategy("number of operands", _count(len)),
    Strategy("difference of the first two", _count(lambda values: abs(values[0] - values[1]), least=2)),
)
