"""Exact arithmetic for expressions and answers of other people: numbers a + b * sqrt(n) with fractions a and b."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from uni_train.core.errors import DataError, UnreadableError
from uni_train.data_gen.maths.shortcuts import NUMBER_WORDS


class UndefinedError(DataError):
    """An expression that has no value, such as a division by zero."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The number a + b * sqrt(n), n square-free; n is 1 and b is 0 for fractions."""

    a: Fraction
    b: Fraction = Fraction(0)
    n: int = 1

    @staticmethod
    def from_parts(a: Fraction | int, b: Fraction | int = 0, n: int = 1) -> Exact:
        a, b = Fraction(a), Fraction(b)
        return Exact(a, b, n) if b else Exact(a)

    @property
    def whole(self) -> int | None:
        """The value as an int, or None if it is not a whole number."""
        return int(self.a) if not self.b and self.a.denominator == 1 else None

    def _radicand(self, other: Exact) -> int:
        if self.b and other.b and self.n != other.n:
            raise UnreadableError(f"{self} and {other} hold two different roots, which are not combined exactly")
        return self.n if self.b else other.n

    def __add__(self, other: Exact) -> Exact:
        return Exact.from_parts(self.a + other.a, self.b + other.b, self._radicand(other))

    def __neg__(self) -> Exact:
        return Exact.from_parts(-self.a, -self.b, self.n)

    def __sub__(self, other: Exact) -> Exact:
        return self + -other

    def __mul__(self, other: Exact) -> Exact:
        n = self._radicand(other)
        return Exact.from_parts(self.a * other.a + self.b * other.b * n, self.a * other.b + self.b * other.a, n)

    def __truediv__(self, other: Exact) -> Exact:
        norm = other.a**2 - other.b**2 * other.n
        if norm == 0:
            raise UndefinedError(f"{self} is divided by zero")
        return self * Exact.from_parts(other.a / norm, -other.b / norm, other.n)

    def __mod__(self, other: Exact) -> Exact:
        if self.b or other.b:
            raise UnreadableError(f"the remainder of {self} and {other} is not worked out exactly")
        if other.a == 0:
            raise UndefinedError(f"the remainder of {self} divided by zero")
        return Exact.from_parts(self.a % other.a)

    def __pow__(self, other: Exact) -> Exact:
        if other.b or (other.a * 2).denominator != 1 or abs(other.a) > 64:
            raise UnreadableError(f"the exponent {other} is not one that is worked out here")
        if self.a == 0 == self.b and other.a <= 0:
            raise UndefinedError(f"0 to the power of {other}")
        base = self if other.a.denominator == 1 else self.root()
        result = Exact.from_parts(1)
        for _ in range(abs(other.a.numerator)):
            result = result * base
            if max(abs(result.a.numerator), abs(result.b.numerator)) > 10**60:
                raise UnreadableError("the numbers become too large")
        return Exact.from_parts(1) / result if other.a < 0 else result

    def root(self) -> Exact:
        if self.b:
            raise UnreadableError(f"the square root of {self} is not worked out exactly")
        if self.a < 0:
            raise UndefinedError(f"the square root of {self}, which is negative")
        radicand = self.a.numerator * self.a.denominator  # sqrt(p / q) = sqrt(p * q) / q
        if radicand > 10**12:
            raise UnreadableError("the numbers become too large")
        square, free, factor = 1, radicand, 2
        while factor * factor <= free:
            while free % (factor * factor) == 0:
                free //= factor * factor
                square *= factor
            factor += 1
        outside = Fraction(square, self.a.denominator)
        return Exact.from_parts(outside * math.isqrt(free)) if free <= 1 else Exact.from_parts(0, outside, free)

    def cube_root(self) -> Exact:
        if not self.b and self.a.denominator == 1:
            size = round(abs(int(self.a)) ** (1 / 3))
            if size**3 == abs(self.a):
                return Exact.from_parts(size if self.a >= 0 else -size)
        raise UnreadableError(f"the cube root of {self} is not a whole number")

    def rounded(self, direction: str) -> Exact:
        """how: "down", "up" or "to the nearest" (halves up)."""
        if self.b:
            low = math.floor(float(self.a) + float(self.b) * math.sqrt(self.n))  # irrational: never on the border
            value = float(self.a) + float(self.b) * math.sqrt(self.n)
            return Exact.from_parts({"down": low, "up": low + 1}.get(direction, math.floor(value + 0.5)))
        if direction == "down":
            return Exact.from_parts(math.floor(self.a))
        return Exact.from_parts(math.ceil(self.a) if direction == "up" else math.floor(self.a + Fraction(1, 2)))

    def __str__(self) -> str:
        if not self.b:
            return str(self.a)
        scale = "" if abs(self.b) == 1 else str(abs(self.b.numerator))
        below = "" if self.b.denominator == 1 else f"/{self.b.denominator}"
        surd = f"{scale}√{self.n}{below}"
        if not self.a:
            return surd if self.b > 0 else f"-{surd}"
        return f"{self.a} {'+' if self.b > 0 else '-'} {surd}"


def read_count(answer: str) -> tuple[Exact, str]:
    """ "4 chairs." -> (4, "chairs"); number words and "a"/"an" count too. UnreadableError without number or noun."""
    text = re.sub(r"\s+", " ", answer).strip().rstrip(".!").strip()
    match = re.fullmatch(r"(-?\d+(?:/\d+|\.\d+)?|[A-Za-z]+(?:-[a-z]+)?)\s+(.+)", text)
    if match is None:
        raise UnreadableError(f'the answer "{answer}" is not a number and an object, such as "4 chairs"')
    number, noun = match.groups()
    if number.lower() in ("a", "an"):
        return Exact.from_parts(1), noun
    try:
        value = Exact.from_parts(Fraction(number))
    except ValueError:
        parts = number.lower().split("-")
        if not all(part in NUMBER_WORDS for part in parts):
            raise UnreadableError(f'the answer "{answer}" does not begin with a number, such as "4 chairs"') from None
        value = Exact.from_parts(sum(NUMBER_WORDS[part] for part in parts))
    return value, noun
