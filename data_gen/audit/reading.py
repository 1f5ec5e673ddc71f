"""Reading other people's puzzles: expressions in signs and words worked out exactly, maths questions, answers, rules.

This is the other half of a check: it shares no code with data_gen.maths and data_gen.phrasing, so a mistake there shows
up as a disagreement here. Arithmetic is exact: numbers a + b*sqrt(n) with fractions a and b.

Words leave precedence open ("the square root of 9 plus 1"), so reading an expression gives every sensible reading, the
conventional one first: signs bind as usual (^ and root, then * / %, then + -, from left to right), a word function
takes the nearest number. The others let a word function reach further, or take words one after the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from data_gen.errors import DataError

# ---------------------------------------------------------------------------------------------------------- numbers


class UnreadableError(DataError):
    """A text whose meaning could not be worked out; the message says where it stopped."""


class UndefinedError(DataError):
    """An expression that has no value, such as a division by zero."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The number a + b * sqrt(n), n square-free; n is 1 and b is 0 for fractions."""

    a: Fraction
    b: Fraction = Fraction(0)
    n: int = 1

    @staticmethod
    def of(a: Fraction | int, b: Fraction | int = 0, n: int = 1) -> Exact:
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
        return Exact.of(self.a + other.a, self.b + other.b, self._radicand(other))

    def __neg__(self) -> Exact:
        return Exact.of(-self.a, -self.b, self.n)

    def __sub__(self, other: Exact) -> Exact:
        return self + -other

    def __mul__(self, other: Exact) -> Exact:
        n = self._radicand(other)
        return Exact.of(self.a * other.a + self.b * other.b * n, self.a * other.b + self.b * other.a, n)

    def __truediv__(self, other: Exact) -> Exact:
        norm = other.a**2 - other.b**2 * other.n
        if norm == 0:
            raise UndefinedError(f"{self} is divided by zero")
        return self * Exact.of(other.a / norm, -other.b / norm, other.n)

    def __mod__(self, other: Exact) -> Exact:
        if self.b or other.b:
            raise UnreadableError(f"the remainder of {self} and {other} is not worked out exactly")
        if other.a == 0:
            raise UndefinedError(f"the remainder of {self} divided by zero")
        return Exact.of(self.a % other.a)

    def __pow__(self, other: Exact) -> Exact:
        if other.b or (other.a * 2).denominator != 1 or abs(other.a) > 64:
            raise UnreadableError(f"the exponent {other} is not one that is worked out here")
        if self.a == 0 == self.b and other.a <= 0:
            raise UndefinedError(f"0 to the power of {other}")
        base = self if other.a.denominator == 1 else self.root()
        result = Exact.of(1)
        for _ in range(abs(other.a.numerator)):
            result = result * base
            if max(abs(result.a.numerator), abs(result.b.numerator)) > 10**60:
                raise UnreadableError("the numbers become too large")
        return Exact.of(1) / result if other.a < 0 else result

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
        return Exact.of(outside * math.isqrt(free)) if free <= 1 else Exact.of(0, outside, free)

    def cube_root(self) -> Exact:
        if not self.b and self.a.denominator == 1:
            size = round(abs(int(self.a)) ** (1 / 3))
            if size**3 == abs(self.a):
                return Exact.of(size if self.a >= 0 else -size)
        raise UnreadableError(f"the cube root of {self} is not a whole number")

    def rounded(self, how: str) -> Exact:
        """how: "down", "up" or "to the nearest" (halves up)."""
        if self.b:
            low = math.floor(float(self.a) + float(self.b) * math.sqrt(self.n))  # irrational: never on the border
            value = float(self.a) + float(self.b) * math.sqrt(self.n)
            return Exact.of({"down": low, "up": low + 1}.get(how, math.floor(value + 0.5)))
        if how == "down":
            return Exact.of(math.floor(self.a))
        return Exact.of(math.ceil(self.a) if how == "up" else math.floor(self.a + Fraction(1, 2)))

    def __str__(self) -> str:
        if not self.b:
            return str(self.a)
        scale = "" if abs(self.b) == 1 else str(abs(self.b.numerator))
        below = "" if self.b.denominator == 1 else f"/{self.b.denominator}"
        surd = f"{scale}√{self.n}{below}"
        if not self.a:
            return surd if self.b > 0 else f"-{surd}"
        return f"{self.a} {'+' if self.b > 0 else '-'} {surd}"


# ------------------------------------------------------------------------------------------------------ expressions

NUMBER_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip

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
    """One way to read an expression: fully parenthesised text and its value, or why it has none (value None)."""

    text: str
    value: Exact | None
    reason: str = ""


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

    def text(self, inside: bool = False) -> str:
        if self.number is not None:
            return str(self.number)
        assert self.left is not None
        if self.right is None:
            return self.op + self.left.text(True)
        op = "*" if self.op == "&" else self.op
        joined = f"{self.left.text(True)} {op} {self.right.text(True)}"
        return f"({joined})" if inside else joined


def _tokens(text: str, variables: dict[str, Exact]) -> list[str | Exact]:
    found: list[str | Exact] = []
    position = 0
    while position < len(text):
        rest = text[position:]
        if space := re.match(r"\s+", rest):
            position += space.end()
            continue
        if number := _NUMBER.match(rest):
            found.append(Exact.of(Fraction(number.group())))
            position += number.end()
            continue
        if sign := _SIGN.match(rest):
            found.append(_SIGNS.get(sign.group(), sign.group()))
            position += sign.end()
            continue
        if (phrase := _PHRASE.match(rest)) and phrase.end():
            found.append(_PHRASES[int(str(phrase.lastgroup)[1:])][1])
            position += phrase.end()
            continue
        if root := re.match(r"sqrt(?=\s*\()", rest):
            found.append("√")
            position += root.end()
            continue
        word = re.match(r"[A-Za-z]+(?:-[A-Za-z]+)?", rest)
        if word is None:
            raise UnreadableError(f'"{rest[:20]}" is no part of an expression')
        position += word.end()
        name = word.group()
        if name in variables:
            found.append(variables[name])
            continue
        parts = name.lower().split("-")
        if all(part in NUMBER_WORDS for part in parts):
            value = sum(NUMBER_WORDS[part] for part in parts)
            last = found[-1] if found else None
            if len(parts) == 1 and value < 10 and isinstance(last, Exact) and _just_tens(text, word.start() + position):
                value = value + int(last.a)
                found.pop()
            found.append(Exact.of(value))
        elif name in ("x", "X") and found and isinstance(found[-1], Exact | str):
            found.append("*")
        else:
            raise UnreadableError(f'"{name}" is no part of an expression')
    return found


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
        found: dict[str, _Node] = {}
        for items in self._lists(start, end):
            for node in _groupings(items):
                found.setdefault(node.text(), node)
            if len(found) > 200:
                raise UnreadableError("the expression can be read in too many ways")
        return list(found.values())

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
        if start >= end:
            return
        token = self.tokens[start]
        if isinstance(token, Exact):
            yield from self._raised(_Node("", number=token), start + 1, end)
        elif token == "(":
            close = self._closing(start, end)
            if close is not None:
                for node in self.whole(start + 1, close):
                    yield from self._raised(node, close + 1, end)
        elif token == "√":
            for node, after in self._tight(start + 1, end):
                yield from self._raised(_Node("√", left=node), after, end)
        elif token == "-":
            for node, after in self._operand(start + 1, end):
                yield _Node("-", left=node), after
        elif token in _PREFIX:
            for after in range(start + 2, end + 1):
                for node in self.whole(start + 1, after):
                    yield _prefixed(str(token), node), after
        elif token in _PAIRED or token == "REMAINDER":
            op, middle = ("%", "W/") if token == "REMAINDER" else (_PAIRED[str(token)], "AND")
            for between in range(start + 2, end - 1):
                if self.tokens[between] != middle and not (op == "%" and self.tokens[between] == "/"):
                    continue
                for left in self.whole(start + 1, between):
                    for after in range(between + 2, end + 1):
                        for right in self.whole(between + 1, after):
                            yield _Node(op, left=left, right=right), after

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
                for node in self.whole(start + 1, close):
                    yield node, close + 1
        elif token == "√":
            for node, after in self._tight(start + 1, end):
                yield _Node("√", left=node), after

    def _raised(self, node: _Node, after: int, end: int) -> Iterator[tuple[_Node, int]]:
        while after < end and self.tokens[after] in ("SUP2", "SUP3"):
            node = _power(node, 2 if self.tokens[after] == "SUP2" else 3)
            after += 1
        yield node, after

    def _closing(self, start: int, end: int) -> int | None:
        depth = 0
        for i in range(start, end):
            depth += (self.tokens[i] == "(") - (self.tokens[i] == ")")
            if depth == 0:
                return i
        return None


def _power(node: _Node, exponent: int) -> _Node:
    return _Node("^", left=node, right=_Node("", number=Exact.of(exponent)))


def _prefixed(token: str, node: _Node) -> _Node:
    if token in ("ROOT", "CUBEROOT"):
        return _Node(_PREFIX[token], left=node)
    if token in ("SQUAREOF", "CUBEOF"):
        return _power(node, 2 if token == "SQUAREOF" else 3)
    if token == "HALF":
        return _Node("/", left=node, right=_Node("", number=Exact.of(2)))
    return _Node("*", left=_Node("", number=Exact.of(2)), right=node)


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
    found: list[Reading] = []
    for node in nodes:
        try:
            found.append(Reading(node.text(), node.value()))
        except UndefinedError as error:
            found.append(Reading(node.text(), None, str(error)))
        except UnreadableError as error:
            if not found:
                raise
            found.append(Reading(node.text(), None, str(error)))  # a far-fetched reading must not hide the plain one
    return found


# ------------------------------------------------------------------------------------------------- maths questions

_VERB = (
    r"(?:please\s+)?(?:generate|produce|show|create|provide|give|make|draw|paint|display|render|illustrate|depict|"
    r"compute|sketch)(?:\s+(?:me|us))?(?:\s+(?:a|an|one)\s+(?:picture|image|drawing|scene)\s+(?:of|with|showing))?"
)
_OBJECT = r"(?P<object>[a-z][a-z' -]*?)"
_AMOUNT = r"(?:number|quantity|amount|count)"
_FRAMES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:work\s+out|compute|calculate|evaluate|find)\s+(?P<expression>.+?)(?:,|\s)\s*(?:and|then)\s+{_VERB}\s+that\s+"
        rf"many\s+{_OBJECT}",
        rf"how\s+(?:much|many)\s+is\s+(?P<expression>.+?)\?\s*{_VERB}\s+(?:that|so|as)\s+many\s+{_OBJECT}",
        rf"{_VERB}\s+{_OBJECT}\s*[:,]\s*as\s+many(?:\s+of\s+them)?\s+as\s+(?P<expression>.+)",
        rf"(?:{_VERB}|(?:the|your|this)\s+(?:picture|image)\s+(?:must|should|has\s+to)\s+(?:show|have|contain))\s+"
        rf"(?:exactly\s+|just\s+)?as\s+many\s+{_OBJECT}\s+as\s+(?P<expression>.+)",
        rf"{_VERB}\s+(?:an?\s+|the\s+)?(?:same\s+|equivalent\s+|exact\s+|equal\s+)?{_AMOUNT}\s+of\s+(?:the\s+)?{_OBJECT}\s+"
        r"(?P<expression>(?:as|equal\s+to|equals|equivalent\s+to|matching|that|which|given)\s+.+)",
        rf"{_VERB}\s+{_OBJECT}\s*,?\s+equal\s+in\s+number\s+to\s+(?P<expression>.+)",
        rf"{_VERB}\s+(?:exactly\s+|just\s+)?(?P<expression>(?:\d|[(√]).*[\d)²³])\s+{_OBJECT}",
        rf"{_VERB}\s+(?P<expression>the\s+(?:outcome|result|value|number)\s+(?:of|equal\s+to)\s+.+)",
    )
]
_LEADING = re.compile(
    r"^(?:as|that|which|you\s+get\s+from|(?:is\s+|are\s+)?equal\s+to|equals|equal|equivalent\s+to|matching|matches|match|"
    r"(?:is\s+|as\s+)?(?:calculated|given|computed|determined)\s+by|obtained\s+from|comes?\s+from|is|are|"
    r"the\s+(?:result|outcome|value|answer|number)\s+(?:of|from|equal\s+to))\s+",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"\s+(?:equals|gives|is|makes|yields|comes\s+to|evaluates\s+to|results\s+in)$", re.IGNORECASE)
_ROUNDED = re.compile(
    r",?\s+(?:(?:and\s+)?then\s+|and\s+)?rounded\s+(down|up|to\s+the\s+nearest(?:\s+(?:whole\s+number|integer))?)$",
    re.IGNORECASE,
)
_WHERE = re.compile(r",?\s+(?:where|with|if|for|when)\s+(?P<names>[A-Za-z]\s*(?:=|is|equals)\s*.+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MathsQuestion:
    """noun: the object as written (mostly plural), None if the question names none; readings: of its expression."""

    noun: str | None
    expression: str
    readings: list[Reading] = field(default_factory=list)


def read_maths(question: str) -> MathsQuestion:
    """A maths question taken apart. UnreadableError when no known frame or expression fits."""
    text = re.sub(r"\s+", " ", question).strip()
    text = re.sub(r"\s*(?:\.|(?<=[A-Za-z])!|=(?:\s*\?)?)$", "", text).strip()
    for frame in _FRAMES:
        match = frame.fullmatch(text)
        if match is None:
            continue
        expression = match.group("expression").strip()
        noun = match.groupdict().get("object")
        return MathsQuestion(noun, expression, _read_framed(expression))
    raise UnreadableError('the question asks for no number of objects in a way known here ("as many ... as ...")')


def _read_framed(expression: str) -> list[Reading]:
    variables: dict[str, Exact] = {}
    if where := _WHERE.search(expression):
        expression = expression[: where.start()]
        for part in re.split(r",\s*|\s+and\s+", where.group("names")):
            given = re.fullmatch(r"([A-Za-z])\s*(?:=|is|equals)\s*(.+)", part.strip(), re.IGNORECASE)
            if given is None:
                raise UnreadableError(f'"where {part}" sets no letter to a number')
            value = read_expression(given.group(2))[0].value
            if value is None:
                raise UnreadableError(f'"where {part}" sets no letter to a number')
            variables[given.group(1)] = value
    how = None
    if rounding := _ROUNDED.search(expression):
        how = rounding.group(1).lower()
        expression = expression[: rounding.start()]
    expression = _TRAILING.sub("", expression.strip())
    while shorter := _LEADING.match(expression):
        expression = expression[shorter.end() :]
    readings = read_expression(expression, variables)
    if how is None:
        return readings
    how = "to the nearest" if how.startswith("to") else how
    return [Reading(f"{r.text}, rounded {how}", r.value and r.value.rounded(how), r.reason) for r in readings]


def read_count(answer: str) -> tuple[Exact, str]:
    """ "4 chairs." -> (4, "chairs"); number words and "a"/"an" count too. UnreadableError without number or noun."""
    text = re.sub(r"\s+", " ", answer).strip().rstrip(".!").strip()
    match = re.fullmatch(r"(-?\d+(?:/\d+|\.\d+)?|[A-Za-z]+(?:-[a-z]+)?)\s+(.+)", text)
    if match is None:
        raise UnreadableError(f'the answer "{answer}" is not a number and an object, such as "4 chairs"')
    number, noun = match.groups()
    if number.lower() in ("a", "an"):
        return Exact.of(1), noun
    try:
        value = Exact.of(Fraction(number))
    except ValueError:
        parts = number.lower().split("-")
        if not all(part in NUMBER_WORDS for part in parts):
            raise UnreadableError(f'the answer "{answer}" does not begin with a number, such as "4 chairs"') from None
        value = Exact.of(sum(NUMBER_WORDS[part] for part in parts))
    return value, noun


# ----------------------------------------------------------------------------------------------- mapping questions

_KIND = r"(?i:(?:(?:the|a|an)\s+)?(?:symbol|letter|number|digit|character|sign|hashtag|numeral|mark|word|code)\s+)"
_QUOTED = r"""['"‘’“”`](?P<{q}>[^'"‘’“”`]+)['"‘’“”`]|['"](?P<{q}q>['"‘’“”`])['"]"""
_BARE = r"(?P<{q}b>[A-Za-z0-9]{{1,3}}|[^\w\s'\"‘’“”`]{{1,3}})"


def _term(name: str) -> str:
    quoted = _QUOTED.format(q=name)
    bare = _BARE.format(q=name)
    return rf"(?:{_KIND})?(?:{quoted}|{bare})(?:\s+(?:symbol|sign|character))?"


_LINK = (
    r"(?:is|are)\s+(?:(?:a|the)\s+(?:symbol|sign|code)\s+)?(?:[a-z]+ed\s+|tied\s+|bound\s+)?(?:to|for|with|by|as)"
    r"|(?:is|are)|[a-z]+s\s+(?:on)?(?:to|for|with|onto|as|by|the\s+same\s+as)|[a-z]+s|means|->|=>|→|⇒|↦|=|:"
)
_RULE = re.compile(
    rf"{_term('left')}\s*(?:\b|(?<=\W))(?P<link>{_LINK})(?:\s+|(?<=[>→⇒↦=:])\s*)(?P<right>.+)", re.DOTALL
)
_SYMBOL = re.compile(_term("name"))
_REQUEST = r"(?:please\s+)?(?:generate|draw|show|create|produce|paint|provide|make|render|depict|display|illustrate)\b"
_ASK = re.compile(
    _REQUEST + r"\s+"
    r"(?:(?:a|an|one)\s+(?:picture|image)\s+of\s+)?(?:(?:the|an|a)\s+)?(?P<category>[A-Za-z' -]*?)\s*"
    r"(?:(?:that\s+is\s+|which\s+is\s+)?(?:represented|denoted|symbolized|symbolised|signified|indicated|meant)\s+by"
    r"|associated\s+with|corresponding\s+to|linked\s+to|(?P<what>what|that|which))\s+(?P<asked>.+)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class MappingQuestion:
    """rules: (left, right, whether right is a symbol); asked: the symbol; category: what the question calls it."""

    rules: tuple[tuple[str, str, bool], ...]
    asked: str
    category: str


@dataclass(frozen=True, slots=True)
class Chain:
    """The way from the asked symbol: steps taken, and the object it ends in, or why it ends in none."""

    steps: tuple[str, ...]
    noun: str | None
    reason: str = ""


def _named(match: re.Match[str], name: str) -> str:
    groups = match.groupdict()
    return str(groups.get(name) or groups.get(f"{name}q") or groups.get(f"{name}b"))


def _clauses(text: str) -> list[str]:
    """Rules one by one: by "Rule 3:" where they are numbered, else by sentence."""
    text = re.sub(r"\s+", " ", text).strip()
    if re.search(r"\bRule\s*\d+\s*[:.]", text, re.IGNORECASE):
        parts = re.split(r"\bRule\s*\d+\s*[:.]\s*", text, flags=re.IGNORECASE)
    else:
        parts = re.split(r"\s?\.(?:\s|$)|;\s*|,\s+(?:and\s+)?(?=(?:the\s+)?(?:symbol|letter|number)\s)", text)
    return [part for part in (_without_stop(part.strip()) for part in parts) if part]


def _without_stop(text: str) -> str:
    """Without the full stop of the sentence (exactly one: a dot may be a symbol)."""
    return text[:-1].rstrip() if text.endswith(".") and len(text) > 1 else text


def read_mapping(question: str) -> MappingQuestion:
    """Rules and asked symbol of a mapping question. UnreadableError for a rule or request that is not understood."""
    text = re.sub(r"\s+", " ", question).strip()
    start = None
    for found in re.finditer(rf"(?:^|[.\s])({_REQUEST})", text, re.IGNORECASE):
        start = found.start(1)
    if start is None:
        raise UnreadableError('nothing is asked for: there is no "Generate the object represented by ..."')
    ask = _ASK.fullmatch(_without_stop(text[start:].strip()))
    if ask is None:
        raise UnreadableError(f'"{text[start:]}" asks for no symbol\'s meaning in a way known here')
    asked = ask.group("asked").strip()
    if ask.group("what"):
        asked = re.sub(r"\s+(?:means|represents|denotes|stands\s+for|refers\s+to|corresponds\s+to|is)$", "", asked)
    symbol = _SYMBOL.fullmatch(asked)
    if symbol is None:
        raise UnreadableError(f'"{asked}" is no symbol')
    rules: list[tuple[str, str, bool]] = []
    for clause in _clauses(text[:start]):
        rules += _read_rule(clause)
    if not rules:
        raise UnreadableError("there are no rules before the request")
    lefts = {left for left, _, _ in rules}
    rules = [(left, right, is_symbol or right in lefts) for left, right, is_symbol in rules]
    return MappingQuestion(tuple(rules), _named(symbol, "name"), ask.group("category").strip().lower())


def _read_rule(clause: str) -> list[tuple[str, str, bool]]:
    match = _RULE.fullmatch(clause)
    if match is None:
        raise UnreadableError(f'"{clause}" is no rule such as "the symbol @ represents apples"')
    left, right = _named(match, "left"), match.group("right").strip()
    # "'Q' stands for the number 8, which means skateboard": two rules in one sentence
    inner = re.fullmatch(r"(.+?),?\s+(?:which|that)\s+(?:in\s+turn\s+)?(.+)", right)
    if inner is not None and (middle := _SYMBOL.fullmatch(inner.group(1))):
        name = _named(middle, "name")
        return [(left, name, True), *_read_rule(f"'{name}' {inner.group(2)}")]
    if symbol := _SYMBOL.fullmatch(right):
        name = _named(symbol, "name")
        # a bare three-letter word is a thing (cat, pen), a bare letter, number or sign a symbol
        if not (right == name and len(name) > 1 and name.isalpha() and not name.isupper()):
            return [(left, name, True)]
    noun = re.sub(r"^(?:a|an|the|some)\s+", "", right, flags=re.IGNORECASE).strip("'\"")
    return [(left, noun, False)]


def follow(question: MappingQuestion) -> list[Chain]:
    """Every way from the asked symbol along the rules; more than one only if a symbol has two meanings."""
    chains: list[Chain] = []

    def walk(symbol: str, steps: tuple[str, ...]) -> None:
        rights = list(dict.fromkeys((right, linked) for left, right, linked in question.rules if left == symbol))
        if symbol in steps:
            chains.append(Chain((*steps, symbol), None, f"{' -> '.join((*steps, symbol))} goes in a circle"))
        elif not rights:
            path = " -> ".join((*steps, symbol))
            chains.append(Chain((*steps, symbol), None, f"{path} ends there: no rule says what {symbol} means"))
        for right, linked in rights if symbol not in steps else ():
            if linked:
                walk(right, (*steps, symbol))
            else:
                chains.append(Chain((*steps, symbol, right), right))

    walk(question.asked, ())
    return chains
