"""The part of Python that our snippets are written in, walked over Python's own syntax tree.

Assignments, `for i in range(n)`, conditions, lists, texts and whole numbers. There are no calls and no attributes, so
a snippet from a file cannot reach anything.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from uni_train.data_gen.ureason.execution import ExecutionError

_STEPS = 20_000
_MAX_LENGTH = 10_000
_MAX_NUMBER = 2**31 - 1
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.Eq: operator.eq, ast.Gt: operator.gt,
}  # fmt: skip


def run(code: str) -> dict[str, Any]:
    """The variables at the end. ExecutionError for what is outside the part of Python that is known here, or fails."""
    walker = _Walker()
    try:
        with warnings.catch_warnings(action="ignore"):
            walker.block(ast.parse(code).body)
    except ExecutionError:  # a ValueError, too
        raise
    except (SyntaxError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise ExecutionError(f"the snippet fails: {type(error).__name__}: {error}") from error
    return walker.variables


class _Walker:
    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}
        self.steps = 0

    def burn(self) -> None:
        self.steps += 1
        if self.steps > _STEPS:
            raise ExecutionError("the snippet runs too long")

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.burn()
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.variables[name] = self.value(value)
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=place)], value=value):
                    self.variables[name][self.value(place)] = self.value(value)
                case ast.If(test=test, body=body, orelse=otherwise):
                    self.block(body if self.value(test) else otherwise)
                case ast.For(
                    target=ast.Name(id=name),
                    iter=ast.Call(func=ast.Name(id="range"), args=[times], keywords=[]),
                    body=body,
                    orelse=[],
                ):
                    for number in range(self.value(times)):
                        self.burn()
                        self.variables[name] = number
                        self.block(body)
                case _:
                    raise ExecutionError(f"line {statement.lineno}: {type(statement).__name__} is not known here")

    def value(self, node: ast.expr) -> Any:
        self.burn()
        match node:
            case ast.Constant(value=int() | str() as value) if not isinstance(value, bool):
                return _bounded(value)
            case ast.Name(id=name) if name in self.variables:
                return self.variables[name]
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Subscript(value=owner, slice=place):
                return self.value(owner)[self.value(place)]
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                values = self.value(left), self.value(right)
                # A text times a number would be long before it is measured; a text % a value is a format.
                kinds = {type(value) for value in values}
                if type(op) in _BINARY and (kinds == {int} or (kinds == {str} and isinstance(op, ast.Add | ast.Eq))):
                    return _bounded(_BINARY[type(op)](*values))
        raise ExecutionError(f"line {node.lineno}: {ast.unparse(node)[:40]} is not known here")


def _bounded(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_LENGTH:
        raise ExecutionError("the snippet makes something too long")
    if isinstance(value, int) and abs(value) > _MAX_NUMBER:
        raise ExecutionError(f"the snippet makes a number beyond {_MAX_NUMBER}")
    return value
