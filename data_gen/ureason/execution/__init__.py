"""What a snippet comes to: run or rendered from its text, without a compiler, a browser or another process.

python and c_family are interpreters of a small part of their languages, sql is SQLite in memory, html lays out the
part of HTML and CSS that the generator writes. None of them can reach files, the network or the machine; whatever is
outside the part that they know is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uni_train.data_gen.errors import DataError


class ExecutionError(DataError):
    """The snippet is outside the part of the language that is known here, or runs too long."""


@dataclass(frozen=True, slots=True)
class Run:
    """The variables at the end (numbers, texts, truth values, lists, dictionaries) and the lines that were printed."""

    variables: Mapping[str, Any]
    printed: tuple[str, ...] = ()


class Fuel:
    """Counts steps; too many are an ExecutionError."""

    def __init__(self, steps: int = 20_000) -> None:
        self.left = steps

    def burn(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ExecutionError("the snippet runs too long")


MAX_LENGTH = 10_000
MAX_NUMBER = 2**31 - 1


def bounded(value: Any) -> Any:
    """`value`, unless it is too large for what an image can be about."""
    if isinstance(value, str | list | dict | tuple) and len(value) > MAX_LENGTH:
        raise ExecutionError("the snippet makes something too long")
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise ExecutionError(f"the snippet makes a number beyond {MAX_NUMBER}")
    return value
