"""Whole-number expressions: drawing them backwards from their value, printing them, and working them out step by step.

An expression is a number, a root of one, or two joined by + - * / ^ %. It is drawn from its result down: value ->
operation -> operands -> ... So results can be balanced, and every intermediate value stays in bounds. Precedence: ^ and
root before * / %, those before + -; equal ones from left to right. Left out on purpose: negative numbers and fractions
as intermediate values, which no level of the benchmark needs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache

from uni_train.data_gen.splits import split_of

OPERATIONS = ("+", "-", "*", "/", "^", "%", "√")
MAX_EXPONENT = 4
TEST_TENTHS = 3  # so that 300 expressions of one operation are left for the test
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3, "√": 4}
_WORDS = {
    "+": "{} plus {}", "-": "{} minus {}", "*": "{} times {}", "/": "{} divided by {}",
    "^": "{} to the power of {}", "%": "the remainder of {} divided by {}", "√": "the square root of {}",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expression:
    """A number (op None), a root (op "√", left only) or `left op right`.

    grouped: printed in parentheses even where precedence does not ask for them; no part of the meaning.
    """

    value: int
    op: str | None = None
    left: Expression | None = None
    right: Expression | None = None
    grouped: bool = False


def apply(op: str, a: int, b: int = 0) -> int | None:
    """`a op b` over the natural numbers, or None where it is undefined, negative or no whole number."""
    if op == "+":
        return a + b
    if op == "-":
        return a - b if a >= b else None
    if op == "*":
        return a * b
    if op == "/":
        return a // b if b and a % b == 0 else None
    if op == "%":
        return a % b if b else None
    if op == "^":
        return None if (a == 0 and b == 0) or b > MAX_EXPONENT else a**b
    root = math.isqrt(a)
    return root if root * root == a else None


def _is_idle(op: str, a: int, b: int) -> bool:
    """Whether an operand makes `a op b` trivial: + 0, - 0, * 1, / 1, ^ 1, % 1."""
    if op in "+*":
        return (0 if op == "+" else 1) in (a, b)
    return b == (0 if op == "-" else 1)


@lru_cache(maxsize=8)
def _ways(limit: int, idle: bool) -> dict[tuple[str, int], tuple[tuple[int, int], ...]]:
    """(op, value) -> every (a, b) with a, b <= limit and a op b == value <= limit. Roots have b = 0.

    idle: with operations that leave a number as it is (4 * 1, 4 - 0) and remainders that are differences (7 % 5). They
        make the answer a number of the prompt, or a difference of two.
    """
    table: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for op in OPERATIONS:
        for a in range(limit + 1):
            if op == "√":
                seconds = range(1)
            elif op == "^":
                seconds = range(2 if a > 9 else 0, MAX_EXPONENT + 1)
            else:
                seconds = range(limit + 1)
            for b in seconds:
                if (op == "%" and a < b) or (not idle and (_is_idle(op, a, b) or (op == "%" and a < 2 * b))):
                    continue
                value = apply(op, a, b)
                if value is not None and value <= limit:
                    table.setdefault((op, value), []).append((a, b))
    return {key: tuple(pairs) for key, pairs in table.items()}


@lru_cache(maxsize=4096)
def _menu(value: int, limit: int, operations: tuple[str, ...], idle: bool) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The operations that can give `value`, with weights.

    The square root of the number of ways: between "every operation alike", which repeats the few sums without end,
    and "every expression alike", which would be nearly all remainders.
    """
    ways = _ways(limit, idle)
    ops = tuple(op for op in operations if (op, value) in ways)
    return ops, tuple(max(2.0, math.sqrt(len(ways[op, value]))) for op in ops)


def draw(value: int, operations: int, random_: random.Random, max_operand: int, max_value: int,
         allowed: tuple[str, ...] = OPERATIONS, idle: bool = False) -> Expression | None:  # fmt: skip
    """An expression with exactly `operations` operations that equals `value`.

    Numbers written are <= max_operand, intermediate values <= max_value. `idle`: as `_ways` has it. None when the draw
    ended in a number too large to be written (draw again).
    """
    if operations == 0:
        return Expression(value) if value <= max_operand else None
    limit = max_value if operations > 1 else max_operand
    ops, weights = _menu(value, limit, allowed, idle)
    if not ops:
        return None
    op = random_.choices(ops, weights)[0]
    a, b = random_.choice(_ways(limit, idle)[op, value])
    if op == "√":
        left = draw(a, operations - 1, random_, max_operand, max_value, allowed, idle)
        return left and Expression(value, op, left)
    first = 0 if operations == 1 else random_.randint(0, operations - 1)
    if op == "^":
        first = operations - 1  # an exponent stays a number
    left = draw(a, first, random_, max_operand, max_value, allowed, idle)
    right = left and draw(b, operations - 1 - first, random_, max_operand, max_value, allowed, idle)
    if left is None or right is None:
        return None
    return Expression(value, op, left, right)


def single(limit: int) -> tuple[Expression, ...]:
    """Every expression of one operation that `draw` can give: numbers and values up to `limit`, no idle ones."""
    return tuple(
        Expression(value, op, Expression(a), None if op == "√" else Expression(b))
        for (op, value), pairs in _ways(limit, False).items()
        for a, b in pairs
    )


def emphasise(expression: Expression, random_: random.Random) -> Expression:
    """The same expression with parentheses around one operand that would not need them (if it has one)."""
    left, right = expression.left, expression.right
    sides = [side for side in (left, right) if side is not None and side.op not in (None, "√")]
    if not sides:
        return expression
    chosen = random_.choice(sides)
    grouped = Expression(chosen.value, chosen.op, chosen.left, chosen.right, True)
    if chosen is left:
        return Expression(expression.value, expression.op, grouped, right, expression.grouped)
    return Expression(expression.value, expression.op, left, grouped, expression.grouped)


def _needs_parentheses(child: Expression, parent: str, is_right: bool) -> bool:
    if child.op is None:
        return False
    if child.grouped:
        return True
    if parent in ("√", "^"):
        return True  # √(√16), (√9)^2, (2^2)^2: never leave these to the reader's conventions
    if child.op == "√":
        return False
    if _RANK[child.op] != _RANK[parent]:
        return _RANK[child.op] < _RANK[parent]
    if is_right:
        return True
    # 9 % 4 * 2 and 8 / 2 * 2 are defined (left to right) but people read them both ways
    return _RANK[parent] == 2 and ("%" in (child.op, parent) or (child.op, parent) == ("/", "*"))


def show(expression: Expression, spaced: bool) -> str:
    """Text with only the parentheses that precedence needs (and those of `grouped`).

    spaced: every number, sign and parenthesis is a token of its own ("( 2 + 1 ) * √ 4"); else "(2 + 1) * √4", "2^3".
    """

    def side(child: Expression, is_right: bool) -> str:
        text = show(child, spaced)
        if not _needs_parentheses(child, expression.op or "", is_right):
            return text
        return f"( {text} )" if spaced else f"({text})"

    if expression.op is None or expression.left is None:
        return str(expression.value)
    if expression.op == "√":
        return ("√ " if spaced else "√") + side(expression.left, False)
    assert expression.right is not None
    joint = "^" if expression.op == "^" and not spaced else f" {expression.op} "
    return side(expression.left, False) + joint + side(expression.right, True)


def in_words(expression: Expression) -> str | None:
    """ "3 plus 2" for a single operation; None for longer ones, whose grouping words would leave open."""
    if expression.op is None or expression.left is None or expression.left.op is not None:
        return None
    if expression.right is None:
        return _WORDS[expression.op].format(expression.left.value)
    if expression.right.op is not None:
        return None
    return _WORDS[expression.op].format(expression.left.value, expression.right.value)


def steps(expression: Expression, spaced: bool) -> list[str]:
    """The calculation, one operation a line, inner ones first and from left to right: "2 * 3 = 6", "6 - 4 = 2"."""
    if expression.op is None or expression.left is None:
        return []
    lines = steps(expression.left, spaced)
    left = Expression(expression.left.value)
    right = None
    if expression.right is not None:
        lines += steps(expression.right, spaced)
        right = Expression(expression.right.value)
    lines.append(f"{show(Expression(expression.value, expression.op, left, right), spaced)} = {expression.value}")
    return lines


def canonical(expression: Expression) -> str:
    """The meaning as text: fully parenthesised, operands of + and * in order, so 3 + 2 and 2 + 3 are one expression."""
    if expression.op is None or expression.left is None:
        return str(expression.value)
    sides = [canonical(expression.left)]
    if expression.right is not None:
        sides.append(canonical(expression.right))
    if expression.op in "+*":
        sides.sort()
    return f"({expression.op} {' '.join(sides)})"


def split(canonical: str) -> str:
    """ "train", "validation" or "test", 60 / 10 / 30."""
    return split_of("maths", canonical, TEST_TENTHS)
