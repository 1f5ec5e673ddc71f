"""UReason as far as nano's words and sprites go: arithmetic in six subcategories, and code that is really Python.

Prompts are one line for one sentence, in the vocabulary of `data_gen.phrasing`; a snippet is lines of Python, which
`execution.python` runs. Splits are those of the maths task, so that no expression of a test prompt was in nano's
pretraining. Left out, because nano's world has no words or no pixels for it: places, colours and shapes, letters.
"""

from __future__ import annotations

import random

from uni_train.data_gen import phrasing
from uni_train.data_gen.maths import expressions
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.ureason.execution import python
from uni_train.data_gen.ureason.outcomes import Sprites
from uni_train.data_gen.ureason.puzzle import Puzzle

_OPERATIONS = {
    "Add": ("+",), "Subtract": ("-",), "Multiply": ("*",), "Divide": ("/",), "Single-Type": ("+", "-", "*", "/"),
}  # fmt: skip
_MAX_OF_TWO_KINDS = 4  # of each: two kinds fit the nine cells


def draw(task: str, subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    """A puzzle with `level` operations (an assignment each, in code); None when the draw ended nowhere."""
    if task == "code":
        return _code(level, random_)
    if subcategory == "Multi-Type":
        return _two_kinds(level, random_)
    noun = random_.choice(NANO.nouns)
    count = random_.randint(1, 6)
    expression = _expression(count, level, random_, _OPERATIONS[subcategory])
    if expression is None or (subcategory == "Single-Type" and level > 1 and len(_signs(expression)) == 1):
        return None
    text = expressions.show(expression, spaced=True)
    prompt = phrasing.ask_count(NANO, noun, text, random_)
    steps = expressions.steps(expression, spaced=True)
    canonical = expressions.canonical(expression)
    return Puzzle("", prompt, "", Sprites(((noun.singular, count),)), tuple(steps), {"expression": text}, canonical)


def _two_kinds(level: int, random_: random.Random) -> Puzzle | None:
    """ "Draw 1 + 2 apples and 3 - 1 cups ." """
    nouns = random_.sample(NANO.nouns, 2)
    counts = [random_.randint(1, _MAX_OF_TWO_KINDS) for _ in nouns]
    drawn = [_expression(count, level, random_, ("+", "-", "*", "/")) for count in counts]
    complete = [expression for expression in drawn if expression is not None]
    if len(complete) < 2:
        return None
    texts = [expressions.show(expression, spaced=True) for expression in complete]
    request = " and ".join(f"{text} {noun.plural}" for text, noun in zip(texts, nouns, strict=True))
    steps = [step for expression in complete for step in expressions.steps(expression, spaced=True)]
    outcome = Sprites(tuple((noun.singular, count) for noun, count in zip(nouns, counts, strict=True)))
    canonical = " | ".join(sorted(expressions.canonical(expression) for expression in complete))
    return Puzzle("", f"Draw {request} .", "", outcome, tuple(steps), {"expression": texts}, canonical)


def _code(level: int, random_: random.Random) -> Puzzle | None:
    """ "A = 3 \\n B = A + 1 \\n Draw as many apples as B ." """
    names = random_.sample("ABCDEFGHJK", level + 1)
    values = [random_.randint(1, NANO.max_operand)]
    lines, steps = [f"{names[0]} = {values[0]}"], []
    for name in names[1:]:
        sign, operand, before = random_.choice("+-*%"), random_.randint(2, 9), values[-1]
        values.append(
            {"+": before + operand, "-": before - operand, "*": before * operand, "%": before % operand}[sign]
        )
        lines.append(f"{name} = {names[len(lines) - 1]} {sign} {operand}")
        steps.append(f"{name} = {before} {sign} {operand} = {values[-1]}")
    snippet = "\n".join(lines)
    if not all(0 <= value <= NANO.max_value for value in values) or not 1 <= values[-1] <= 6:
        return None
    count = python.run(snippet)[names[-1]]
    noun = random_.choice(NANO.nouns)
    joined = " \n ".join(lines)
    prompt = f"{joined} \n Draw as many {noun.plural} as {names[-1]} ."
    canonical = " ; ".join(line.split(" = ")[1] for line in lines)
    return Puzzle(
        "", prompt, "", Sprites(((noun.singular, count),)), tuple(steps),
        {"code": snippet, "language": "Python", "asks": names[-1]}, canonical,
    )  # fmt: skip


def _expression(
    count: int, level: int, random_: random.Random, operations: tuple[str, ...]
) -> expressions.Expression | None:
    return expressions.draw(count, level, random_, NANO.max_operand, NANO.max_value, operations, idle=True)


def _signs(expression: expressions.Expression | None) -> set[str]:
    if expression is None or expression.op is None:
        return set()
    return {expression.op} | _signs(expression.left) | _signs(expression.right)
