"""Expressions in signs and words, as other people write them, worked out exactly.

This is the other half of a check: it shares no code with what makes the questions (`task`, `expressions` and
data_gen.phrasing). So a mistake there shows up as a disagreement here.

Words leave precedence open ("the square root of 9 plus 1"). Reading an expression therefore gives every sensible
reading. The first is the conventional one: signs bind as usual (^ and root, then * / %, then + -, from left to right),
and a word function takes the nearest number. The others let a word function reach further, or take words in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from uni_train.core.errors import UnreadableError
from uni_train.data_gen.maths.exact import Exact, UndefinedError
from uni_train.data_gen.maths.shortcuts import NUMBER_WORDS

DIGITS = 1000  # of a number; int() refuses a few thousand

# Phrases -> one token each, longest first. Capitals are word tokens, whose reach the sentence leaves open.
_THEN = r",?\s*(?:and\s+)?\bthen\s+"
_PHRASES = [
    (_THEN + r"(?:take|taking)\s+(?:the\s+|its\s+)?square\s+root(?:\s+of\s+(?:it|that|the\s+result))?", "THENROOT"),
    (_THEN + r"(?:add|plus)", "THEN+"),
    (_THEN + r"(?:subtract|minus|take\s+away)", "THEN-"),
    (_THEN + r"(?:multiply\s+(?:it\s+|that\s+)?by|multiplied\s+by|times)", "THEN*"),
    (_THEN + r"(?:divide\s+(?:it\s+|that\s+)?by|divided\s+by)", "THEN/"),
    (_THEN + r"(?:square\s+(?:it|that)|squared)", "THENSQUARED"),
    (r",\s*(?:and\s+)?plus", "THEN+"),
    (r",\s*(?:and\s+)?minus", "THEN-"),
    (r",\s*(?:and\s+)?(?:times|multiplied\s+by)", "THEN*"),
    (r",\s*(?:and\s+)?divided\s+by", "THEN/"),
    (r"(?:the\s+)?square\s+root\s+of", "ROOT"),
    (r"(?:the\s+)?cube\s+root\s+of", "CUBEROOT"),
    (r"(?:the\s+)?square\s+of", "SQUAREOF"),
    (r"(?:the\s+)?cube\s+of", "CUBEOF"),
    (r"(?:the\s+)?(?:remainder|rest)\s+(?:of|when|if)", "REMAINDER"),
    (r"(?:the\s+)?sum\s+of", "SUM"),
    (r"(?:the\s+)?difference\s+(?:between|of)", "DIFFERENCE"),
    (r"(?:the\s+)?product\s+of", "PRODUCT"),
    (r"(?:the\s+)?quotient\s+of", "QUOTIENT"),
    (r"(?:one\s+)?half\s+(?:of\s+)?", "HALF"),
    (r"(?:twice|double)(?:\s+of)?", "TWICE"),
    (r"(?:raised\s+)?to\s+the\s+power\s+of|raised\s+to", "W^"),
    (r"(?:is\s+|are\s+)?divided\s+by|over", "W/"),
    (r"multiplied\s+by|times", "W*"),
    (r"modulo|mod", "W%"),
    (r"plus|increased\s+by|added\s+to", "W+"),
    (r"minus|decreased\s+by|reduced\s+by|less", "W-"),
    (r"squared", "SQUARED"),
    (r"cubed", "CUBED"),
    (r"and", "AND"),
]  # fmt: skip
_PHRASE = re.compile(
    "|".join(f"(?P<P{i}>(?:{pattern})(?![A-Za-z]))" for i, (pattern, _) in enumerate(_PHRASES)), re.IGNORECASE
)
_SIGNS = {"×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "−": "-", "–": "-", "**": "^", "²": "SUP2", "³": "SUP3"}
_SIGN = re.compile(r"\*\*|[-+*/^%()√×·⋅∗÷−–²³]")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "&": 2, "^": 4}
_PREFIX = {"ROOT": "√", "CUBEROOT": "∛", "SQUAREOF": "^2", "CUBEOF": "^3", "HALF": "1/2 * ", "TWICE": "2 * "}
_PAIRED = {"SUM": "+", "DIFFERENCE": "-", "PRODUCT": "*", "QUOTIENT": "/"}
MAX_TOKENS = 60


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read an expression: fully parenthesised text and its value, or why it has none (value None).

    canonical: the text with the operands of + and * in order, so that 3 + 2 and 2 + 3 are one.
    """

    text: str
    value: Exact | None
    reason: str = ""
    canonical: str = ""


@dataclass(frozen=True, slots=True)
class _Node:
    """A number (op ""), op with one operand, or two."""

    op: str
    number: Exact | None = None
    left: _Node | None = None
    right: _Node | None = None

    def value(self) -> Exact:
        if self.number is not None:
            return self.number
        assert self.left is not None
        left = self.left.value()
        if self.right is None:
            if self.op == "√":
                return left.root()
            return left.cube_root() if self.op == "∛" else -left
        right = self.right.value()
        match self.op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*" | "&":
                return left * right
            case "/":
                return left / right
            case "%":
                return left % right
            case _:
                return left**right

    def text(self, inside: bool = False, ordered: bool = False) -> str:
        if self.number is not None:
            return str(self.number)
        assert self.left is not None
        if self.right is None:
            return self.op + self.left.text(True, ordered)
        op, sides = "*" if self.op == "&" else self.op, [side.text(True, ordered) for side in (self.left, self.right)]
        joined = f" {op} ".join(sorted(sides) if ordered and op in "+*" else sides)
        return f"({joined})" if inside else joined


def _tokens(text: str, variables: dict[str, Exact]) -> list[str | Exact]:
    tokens: list[str | Exact] = []
    position = 0
    while position < len(text):
        rest = text[position:]
        if space := re.match(r"\s+", rest):
            position += space.end()
            continue
        if number := _NUMBER.match(rest):
            if len(number.group()) > DIGITS:
                raise UnreadableError(f"a number of {len(number.group()):,} digits")
            tokens.append(Exact.from_parts(Fraction(number.group())))
            position += number.end()
            continue
        if sign := _SIGN.match(rest):
            tokens.append(_SIGNS.get(sign.group(), sign.group()))
            position += sign.end()
            continue
        if (phrase := _PHRASE.match(rest)) and phrase.end():
            tokens.append(_PHRASES[int(str(phrase.lastgroup)[1:])][1])
            position += phrase.end()
            continue
        if root := re.match(r"sqrt(?=\s*\()", rest):
            tokens.append("√")
            position += root.end()
            continue
        word = re.match(r"[A-Za-z]+(?:-[A-Za-z]+)?", rest)
        if word is None:
            raise UnreadableError(f'"{rest[:20]}" is no part of an expression')
        position += word.end()
        name = word.group()
        if name in variables:
            tokens.append(variables[name])
            continue
        parts = name.lower().split("-")
        if all(part in NUMBER_WORDS for part in parts):
            value = sum(NUMBER_WORDS[part] for part in parts)
            last = tokens[-1] if tokens else None
            if len(parts) == 1 and value < 10 and isinstance(last, Exact) and _just_tens(text, word.start() + position):
                value = value + int(last.a)
                tokens.pop()
            tokens.append(Exact.from_parts(value))
        elif name in ("x", "X") and tokens and isinstance(tokens[-1], Exact | str):
            tokens.append("*")
        else:
            raise UnreadableError(f'"{name}" is no part of an expression')
    return tokens


def _just_tens(text: str, end: int) -> bool:
    """Whether the word before the last one in text[:end] is "twenty" to "ninety": "twenty one" is one number."""
    words = text[:end].lower().split()
    return len(words) > 1 and words[-2] in NUMBER_WORDS and NUMBER_WORDS[words[-2]] >= 20


class _Reader:
    """All readings of a token list. Spans are half-open; results are kept, since the spans overlap."""

    def __init__(self, tokens: list[str | Exact]) -> None:
        self.tokens = tokens
        self.known: dict[tuple[int, int], list[_Node]] = {}

    def whole(self, start: int, end: int) -> list[_Node]:
        """Readings of tokens[start:end] as one expression, the conventional one first; [] if it is none."""
        if (start, end) not in self.known:
            self.known[start, end] = []  # a span never contains itself
            self.known[start, end] = self._whole(start, end)
        return self.known[start, end]

    def _whole(self, start: int, end: int) -> list[_Node]:
        depth = 0
        for i in range(end - 1, start, -1):  # "..., then add 2": everything before it, then the rest
            token = self.tokens[i]
            depth += (token == ")") - (token == "(")
            if depth == 0 and isinstance(token, str) and token.startswith("THEN"):
                before = self.whole(start, i)
                if token in ("THENROOT", "THENSQUARED"):
                    if i + 1 != end:
                        return []
                    square = token == "THENSQUARED"
                    return [_power(n, 2) if square else _Node("√", left=n) for n in before]
                return [_Node(token[4:], left=a, right=b) for a in before for b in self.whole(i + 1, end)]
        nodes: dict[str, _Node] = {}
        for items in self._lists(start, end):
            for node in _groupings(items):
                nodes.setdefault(node.text(), node)
            if len(nodes) > 200:
                raise UnreadableError("the expression can be read in too many ways")
        return list(nodes.values())

    def _lists(self, start: int, end: int) -> Iterator[list[_Node | str]]:
        """Ways to cut the span into operand, operator, operand, ..."""

        def extend(items: list[_Node | str], position: int) -> Iterator[list[_Node | str]]:
            if position == end:
                yield items
                return
            token = self.tokens[position]
            if isinstance(token, str) and (token in _RANK or token.startswith("W")):
                for operand, after in self._operand(position + 1, end):
                    yield from extend([*items, token, operand], after)
            elif token in ("SQUARED", "CUBED"):
                exponent = 2 if token == "SQUARED" else 3
                if isinstance(items[-1], _Node):
                    yield from extend([*items[:-1], _power(items[-1], exponent)], position + 1)
                if len(items) > 1:
                    for node in _groupings(items):
                        yield from extend([_power(node, exponent)], position + 1)
            else:  # 2(3 + 1), 2√9
                for operand, after in self._operand(position, end):
                    if not isinstance(token, Exact):
                        yield from extend([*items, "&", operand], after)

        for operand, after in self._operand(start, end):
            yield from extend([operand], after)

    def _operand(self, start: int, end: int) -> Iterator[tuple[_Node, int]]:
        """Operands that begin at `start`, each with the place after it."""
        if start >= end:
            return
        token = self.tokens[start]
        if token == "-":
            yield from ((_Node("-", left=node), after) for node, after in self._operand(start + 1, end))
        elif token in _PREFIX:
            yield from self._reached(str(token), start + 1, end)
        elif token in _PAIRED or token == "REMAINDER":
            yield from self._paired(str(token), start + 1, end)
        else:
            yield from (self._raised(node, after, end) for node, after in self._tight(start, end))

    def _reached(self, word: str, start: int, end: int) -> Iterator[tuple[_Node, int]]:
        """What a word function ("the square root of") takes: the nearest number, or more and more of what follows."""
        for after in range(start + 1, end + 1):
            yield from ((_prefixed(word, node), after) for node in self.whole(start, after))

    def _paired(self, word: str, start: int, end: int) -> Iterator[tuple[_Node, int]]:
        """ "the sum of ... and ...", "the remainder of ... divided by ..."."""
        op, middles = ("%", ("W/", "/")) if word == "REMAINDER" else (_PAIRED[word], ("AND",))
        for between in range(start + 1, end - 1):
            if self.tokens[between] in middles:
                yield from (
                    (_Node(op, left=left, right=right), after)
                    for left in self.whole(start, between)
                    for after in range(between + 2, end + 1)
                    for right in self.whole(between + 1, after)
                )

    def _tight(self, start: int, end: int) -> Iterator[tuple[_Node, int]]:
        """What the sign √ takes: a number, a parenthesis or another root."""
        if start >= end:
            return
        token = self.tokens[start]
        if isinstance(token, Exact):
            yield _Node("", number=token), start + 1
        elif token == "(":
            close = self._closing(start, end)
            if close is not None:
                yield from ((node, close + 1) for node in self.whole(start + 1, close))
        elif token == "√":
            yield from ((_Node("√", left=node), after) for node, after in self._tight(start + 1, end))

    def _raised(self, node: _Node, after: int, end: int) -> tuple[_Node, int]:
        """With the ² and ³ that follow."""
        while after < end and self.tokens[after] in ("SUP2", "SUP3"):
            node = _power(node, 2 if self.tokens[after] == "SUP2" else 3)
            after += 1
        return node, after

    def _closing(self, start: int, end: int) -> int | None:
        depth = 0
        for i in range(start, end):
            depth += (self.tokens[i] == "(") - (self.tokens[i] == ")")
            if depth == 0:
                return i
        return None


def _power(node: _Node, exponent: int) -> _Node:
    return _Node("^", left=node, right=_Node("", number=Exact.from_parts(exponent)))


def _prefixed(token: str, node: _Node) -> _Node:
    if token in ("ROOT", "CUBEROOT"):
        return _Node(_PREFIX[token], left=node)
    if token in ("SQUAREOF", "CUBEOF"):
        return _power(node, 2 if token == "SQUAREOF" else 3)
    if token == "HALF":
        return _Node("/", left=node, right=_Node("", number=Exact.from_parts(2)))
    return _Node("*", left=_Node("", number=Exact.from_parts(2)), right=node)


def _groupings(items: list[_Node | str]) -> Iterator[_Node]:
    """The conventional tree of operand, operator, operand, ...; with words also the one from left to right."""
    yield _climb(items, _RANK)
    operators = [item for item in items if isinstance(item, str)]
    if any(op.startswith("W") for op in operators):
        yield _climb(items, dict.fromkeys(_RANK, 1))
    if "&" in operators:
        yield _climb(items, _RANK | {"&": 3})  # 6 / 2(1 + 2)


def _climb(items: list[_Node | str], rank: dict[str, int]) -> _Node:
    """Operator precedence; ^ from right to left where it binds tightest, everything else from left to right."""
    position = 0

    def parse(lowest: int) -> _Node:
        nonlocal position
        node = items[position]
        assert isinstance(node, _Node)
        position += 1
        while position < len(items):
            op = str(items[position])[-1]
            if rank[op] < lowest:
                break
            position += 1
            rightwards = op == "^" and rank["^"] > 1
            node = _Node(op, left=node, right=parse(rank[op] + (not rightwards)))
        return node

    return parse(0)


def read_expression(text: str, variables: dict[str, Exact] | None = None) -> list[Reading]:
    """Every sensible reading of `text`, the conventional one first. UnreadableError if it is no expression."""
    tokens = _tokens(text, variables or {})
    if len(tokens) > MAX_TOKENS:
        raise UnreadableError("the expression is too long")
    if not any(isinstance(token, Exact) for token in tokens):
        raise UnreadableError(f'"{text}" holds no number')
    nodes = _Reader(tokens).whole(0, len(tokens))
    if not nodes:
        raise UnreadableError(f'"{text}" is not a complete expression')
    readings: list[Reading] = []
    for node in nodes:
        value, reason = None, ""
        try:
            value = node.value()
        except UndefinedError as error:
            reason = str(error)
        except UnreadableError as error:
            if not readings:
                raise
            reason = str(error)  # a far-fetched reading must not hide the plain one
        readings.append(Reading(node.text(), value, reason, node.text(ordered=True)))
    return readings
