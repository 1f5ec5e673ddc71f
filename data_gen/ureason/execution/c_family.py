"""The part that C++, C#, Java and JavaScript share: numbers, texts, arrays, conditions, loops. Parsed, then walked.

Where the four differ, they differ here too: whole division, what a character of a text is, whether a number may be
added to a text, how texts are compared, what lengths are called. Outside of that part everything is an error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from uni_train.data_gen.ureason.execution import ExecutionError, Fuel, Run, bounded

LANGUAGES = ("C++", "C#", "Java", "JavaScript")

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
      | (?P<number>\d+(?![\w.])) | (?P<text>"(?:[^"\\\n]|\\["\\n])*") | (?P<char>'(?:[^'\\\n]|\\['\\n])*')
      | (?P<name>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)
      | (?P<sign>===|!==|==|!=|<=|>=|&&|\|\||\+\+|--|\+=|-=|\*=|/=|%=|[-+*/%<>=!?:;,.(){}\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\'": "'", "\\\\": "\\"}
_LEVELS = (("||",), ("&&",), ("==", "!=", "===", "!=="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"))
_ASSIGNS = ("=", "+=", "-=", "*=", "/=", "%=")
_TYPES = {"int", "string", "String", "std::string", "bool", "boolean", "char", "auto", "var", "let", "const",
          "vector", "std::vector", "List", "ArrayList"}  # fmt: skip

Node = tuple[Any, ...]


class Char(str):
    """One character of a text, which in C++, C# and Java is another type than a text."""


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


def run(code: str, language: str) -> Run:
    """Runs a snippet. ExecutionError for what is outside the known part of the language, or fails in it."""
    if language not in LANGUAGES:
        raise ExecutionError(f"{language} is not known here: {', '.join(LANGUAGES)}")
    walker = _Walker(language)
    try:
        for statement in _Parser(list(_tokens(code)), language).program():
            walker.do(statement)
    except ExecutionError:
        raise
    except (_Break, _Continue, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ExecutionError(f"the snippet fails: {type(error).__name__}: {error}") from error
    return Run(walker.scopes[0])


def _tokens(code: str) -> Iterator[tuple[str, str]]:
    """(kind, text) without blanks and comments."""
    at = 0
    while at < len(code):
        found = _TOKEN.match(code, at)
        if found is None:
            raise ExecutionError(f"line {code[:at].count(chr(10)) + 1}: {code[at : at + 10]!r} is not known here")
        at = found.end()
        if found.lastgroup is not None:
            yield found.lastgroup, found.group()
    yield "end", ""


@dataclass
class _Parser:
    """Statements and expressions as nested tuples whose first part says what they are."""

    tokens: list[tuple[str, str]]
    language: str
    at: int = 0

    def program(self) -> list[Node]:
        found = []
        while self.peek() != "":
            found.append(self.statement())
        return found

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.tokens[place][1] if place < len(self.tokens) else ""

    def take(self) -> tuple[str, str]:
        token = self.tokens[self.at]
        if token[0] == "end":
            raise ExecutionError("the snippet ends too early")
        self.at += 1
        return token

    def accept(self, *signs: str) -> str | None:
        return self.take()[1] if self.peek() in signs and self.tokens[self.at][0] in ("sign", "name") else None

    def expect(self, sign: str) -> None:
        if self.accept(sign) is None:
            raise ExecutionError(f"expected {sign!r}, found {self.peek()!r}")

    def name(self) -> str:
        kind, text = self.take()
        if kind != "name":
            raise ExecutionError(f"expected a name, found {text!r}")
        return text

    # --- statements ----------------------------------------------------------------------------------------------

    def statement(self) -> Node:
        if self.accept("{"):
            statements = []
            while self.accept("}") is None:
                statements.append(self.statement())
            return ("block", statements)
        if self.accept("if"):
            test = self.in_parentheses()
            body, otherwise = self.statement(), None
            if self.accept("else"):
                otherwise = self.statement()
            return ("if", test, body, otherwise)
        if self.accept("while"):
            return ("while", self.in_parentheses(), self.statement())
        if self.accept("for", "foreach"):
            return self.loop()
        if word := self.accept("break", "continue"):
            self.expect(";")
            return (word,)
        node = self.simple()
        if self.accept(";") is None and self.language != "JavaScript":
            raise ExecutionError(f"a statement ends without ';' before {self.peek()!r}")
        return node

    def in_parentheses(self) -> Node:
        self.expect("(")
        node = self.expression()
        self.expect(")")
        return node

    def loop(self) -> Node:
        self.expect("(")
        start: Node | None = None
        if self.peek() != ";":
            mark = self.at
            if self.skip_type():
                name = self.name()
                if self.accept(":", "in", "of"):
                    items = self.expression()
                    self.expect(")")
                    return ("each", name, items, self.statement())
            self.at = mark
            start = self.simple()
        self.expect(";")
        test = self.expression() if self.peek() != ";" else ("value", True)
        self.expect(";")
        step = self.expression() if self.peek() != ")" else None
        self.expect(")")
        return ("for", start, test, step, self.statement())

    def simple(self) -> Node:
        """A declaration or an expression."""
        mark = self.at
        if self.skip_type() and self.tokens[self.at][0] == "name" and self.peek(1) in ("=", ";", "[", "{"):
            name = self.name()
            if self.accept("["):
                self.expect("]")
            if self.peek() != "{":
                if self.accept("=") is None:
                    return ("declare", name, ("value", None))
                if self.peek() != "{":
                    return ("declare", name, self.expression())
            self.expect("{")
            return ("declare", name, ("array", self.listed("}")))
        self.at = mark
        return self.expression()

    def skip_type(self) -> bool:
        """Over `const std::vector<std::string>`, `string[]`, `let`; whether there was one."""
        if self.tokens[self.at][0] != "name" or self.peek() not in _TYPES:
            return False
        while self.accept(*_TYPES):
            if self.accept("<") and (not self.skip_type() or self.accept(">") is None):
                raise ExecutionError("a type that is not known here")
            if self.peek() == "[" and self.peek(1) == "]":
                self.at += 2
        return True

    def listed(self, close: str) -> list[Node]:
        """Expressions up to `close`."""
        found: list[Node] = []
        while self.accept(close) is None:
            if found:
                self.expect(",")
                if self.accept(close):
                    break
            found.append(self.expression())
        return found

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self) -> Node:
        left = self.choice()
        if sign := self.accept(*_ASSIGNS):
            return ("assign", sign, left, self.expression())
        return left

    def choice(self) -> Node:
        test = self.binary(0)
        if self.accept("?") is None:
            return test
        yes = self.expression()
        self.expect(":")
        return ("choose", test, yes, self.expression())

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while sign := self.accept(*_LEVELS[level]):
            left = ("binary", sign, left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        if sign := self.accept("!", "-"):
            return ("unary", sign, self.unary())
        if sign := self.accept("++", "--"):
            return ("assign", sign[0] + "=", self.unary(), ("value", 1))
        node = self.primary()
        while True:
            if self.accept("["):
                node = ("item", node, self.expression())
                self.expect("]")
            elif self.accept("."):
                name = self.name()
                node = ("call", node, name, self.listed(")")) if self.accept("(") else ("member", node, name)
            elif sign := self.accept("++", "--"):
                node = ("assign", sign[0] + "=", node, ("value", 1))
            else:
                return node

    def primary(self) -> Node:
        kind, text = self.take()
        if kind == "number":
            return ("value", bounded(int(text)))
        if kind in ("text", "char"):
            read = re.sub(r"\\.", lambda found: _ESCAPES[found[0]], text[1:-1])
            return ("value", Char(read) if kind == "char" and self.language != "JavaScript" else read)
        if text == "(":
            node = self.expression()
            self.expect(")")
            return node
        if text == "[" and self.language == "JavaScript":
            return ("array", self.listed("]"))
        if text in ("true", "false"):
            return ("value", text == "true")
        if text == "null" and self.language != "C++":
            return ("value", None)
        if kind == "name":
            return ("name", text)
        raise ExecutionError(f"{text!r} is not known here")


class _Walker:
    def __init__(self, language: str) -> None:
        self.language = language
        self.scopes: list[dict[str, Any]] = [{}]
        self.fuel = Fuel()

    def do(self, node: Node) -> None:
        self.fuel.burn()
        match node:
            case ("block", body):
                self.inside(body)
            case ("if", test, body, otherwise):
                if self.truth(test):
                    self.inside([body])
                elif otherwise is not None:
                    self.inside([otherwise])
            case ("while", test, body):
                self.rounds(test, body, None)
            case ("for", start, test, step, body):
                self.scopes.append({})
                if start is not None:
                    self.do(start)
                self.rounds(test, body, step)
                self.scopes.pop()
            case ("each", name, items, body):
                for item in list(self.array(items)):
                    self.scopes.append({name: item})
                    stop = self.once(body)
                    self.scopes.pop()
                    if stop:
                        break
            case ("declare", name, value):
                self.scopes[-1][name] = self.copied(self.value(value))
            case ("break",):
                raise _Break
            case ("continue",):
                raise _Continue
            case _:
                self.value(node)

    def inside(self, body: list[Node]) -> None:
        self.scopes.append({})
        depth = len(self.scopes)
        try:
            for statement in body:
                self.do(statement)
        finally:
            del self.scopes[depth - 1 :]

    def rounds(self, test: Node, body: Node, step: Node | None) -> None:
        while self.truth(test):
            if self.once(body):
                break
            if step is not None:
                self.value(step)

    def once(self, body: Node) -> bool:
        """One round of a loop; whether it was the last."""
        try:
            self.inside([body])
        except _Continue:
            return False
        except _Break:
            return True
        return False

    def copied(self, value: Any) -> Any:
        """A C++ array is copied where it is assigned; the others are shared."""
        return list(value) if self.language == "C++" and isinstance(value, list) else value

    def truth(self, node: Node) -> bool:
        value = self.value(node)
        if not isinstance(value, bool):
            raise ExecutionError("a condition that is neither true nor false")
        return value

    def array(self, node: Node) -> list[Any]:
        value = self.value(node)
        if not isinstance(value, list):
            raise ExecutionError("expected an array")
        return value

    def find(self, name: str) -> dict[str, Any]:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope
        raise ExecutionError(f"{name} is not declared")

    def value(self, node: Node) -> Any:
        self.fuel.burn()
        match node:
            case ("value", value):
                return value
            case ("name", name):
                return self.find(name)[name]
            case ("array", items):
                return [self.value(item) for item in items]
            case ("choose", test, yes, no):
                return self.value(yes if self.truth(test) else no)
            case ("unary", "!", one):
                return not self.truth(one)
            case ("unary", "-", one):
                return -_whole(self.value(one))
            case ("binary", "&&", left, right):
                return self.truth(left) and self.truth(right)
            case ("binary", "||", left, right):
                return self.truth(left) or self.truth(right)
            case ("binary", sign, left, right):
                return bounded(self.binary(sign, self.value(left), self.value(right)))
            case ("assign", sign, target, value):
                return self.assign(sign, target, value)
            case ("item", owner, place):
                return self.item(self.value(owner), _whole(self.value(place)))
            case ("member", owner, name):
                return self.length(self.value(owner), name, called=False)
            case ("call", owner, name, arguments):
                return bounded(self.call(self.value(owner), name, [self.value(one) for one in arguments]))
        raise ExecutionError(f"{node[0]} is not known here")

    def assign(self, sign: str, target: Node, value: Node) -> Any:
        new = self.value(value)
        if sign != "=":
            new = bounded(self.binary(sign[0], self.value(target), new))
        match target:
            case ("name", name):
                self.find(name)[name] = self.copied(new)
            case ("item", owner, place):
                array, index = self.array(owner), _whole(self.value(place))
                self.item(array, index)
                array[index] = new
            case _:
                raise ExecutionError("something is assigned to that cannot change")
        return new

    def item(self, owner: Any, index: int) -> Any:
        if not isinstance(owner, list | str) or not 0 <= index < len(owner):
            raise ExecutionError(f"there is no item {index}")
        if isinstance(owner, list):
            return owner[index]
        if self.language == "Java":
            raise ExecutionError("a text has no [] in Java")
        return owner[index] if self.language == "JavaScript" else Char(owner[index])

    def binary(self, sign: str, left: Any, right: Any) -> Any:
        if sign in ("==", "!=", "===", "!=="):
            if self.language == "Java" and isinstance(left, str) and not isinstance(left, Char):
                raise ExecutionError("Java compares texts with equals")
            if (len(sign) == 3) != (self.language == "JavaScript") or not _alike(left, right):
                raise ExecutionError(f"{sign} of {type(left).__name__} and {type(right).__name__} is not known here")
            return (left == right) == (sign[0] == "=")
        if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
            return self.joined(left, right)
        a, b = _whole(left), _whole(right)
        if sign in _COMPARISONS:
            return _COMPARISONS[sign](a, b)
        if sign in "/%" and b == 0:
            raise ExecutionError("division by nothing")
        if sign == "/":
            if self.language == "JavaScript" and a % b:
                raise ExecutionError("a division that leaves a fraction")
            return abs(a) // abs(b) * (1 if a * b >= 0 else -1)
        if sign == "%":
            return abs(a) % abs(b) * (1 if a >= 0 else -1)
        return {"+": a + b, "-": a - b, "*": a * b}[sign]

    def joined(self, left: Any, right: Any) -> str:
        texts = [one for one in (left, right) if isinstance(one, str) and not isinstance(one, Char)]
        numbers = [one for one in (left, right) if not isinstance(one, str)]
        if not texts or (numbers and self.language == "C++") or any(not _is_whole(one) for one in numbers):
            raise ExecutionError(f"{type(left).__name__} + {type(right).__name__} is not known here")
        return str(left) + str(right)

    def length(self, owner: Any, name: str, called: bool) -> int:
        known = {
            "JavaScript": not called and name == "length",
            "C#": not called and name == "Length",
            "C++": called and name in ("size", "length"),
            "Java": name == "length" and called == isinstance(owner, str),
        }[self.language]
        if not known or not isinstance(owner, list | str):
            raise ExecutionError(f".{name} is not known here")
        return len(owner)

    def call(self, owner: Any, name: str, arguments: list[Any]) -> Any:
        text, numbers = isinstance(owner, str), [one for one in arguments if _is_whole(one)]
        match (self.language, name, len(arguments)):
            case ("Java" | "JavaScript", "charAt", 1) if text and numbers:
                if not 0 <= numbers[0] < len(owner):
                    raise ExecutionError(f"there is no character {numbers[0]}")
                return Char(owner[numbers[0]]) if self.language == "Java" else owner[numbers[0]]
            case ("Java" | "JavaScript", "substring", 2) if text and len(numbers) == 2:
                return self.part(owner, *numbers)
            case ("C#", "Substring", 2) | ("C++", "substr", 2) if text and len(numbers) == 2:
                return self.part(owner, numbers[0], numbers[0] + numbers[1])
            case ("Java", "equals", 1) if text:
                return bool(owner == arguments[0])
            case ("Java" | "JavaScript", "toUpperCase", 0) | ("C#", "ToUpper", 0) if text:
                return owner.upper()
            case ("JavaScript", "push", 1) | ("C++", "push_back", 1) if isinstance(owner, list):
                return owner.append(arguments[0])
            case ("JavaScript", "pop", 0) if isinstance(owner, list) and owner:
                return owner.pop()
            case ("JavaScript", "reverse", 0) if isinstance(owner, list):
                owner.reverse()
                return owner
            case (_, _, 0):
                return self.length(owner, name, called=True)
        raise ExecutionError(f".{name}(...) is not known here")

    def part(self, text: str, start: int, end: int) -> str:
        if not 0 <= start <= end <= len(text):
            raise ExecutionError(f"there is no part {start} to {end} of {text!r}")
        return text[start:end]


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: Any) -> int:
    if not _is_whole(value):
        raise ExecutionError(f"expected a number, found {type(value).__name__}")
    return int(value)


def _alike(left: Any, right: Any) -> bool:
    return type(left) is type(right) and isinstance(left, int | str)
