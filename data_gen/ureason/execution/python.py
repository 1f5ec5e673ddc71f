"""A small part of Python, walked over its own syntax tree: assignments, conditions, loops, lists, dictionaries, texts.

Names, attributes and calls are looked up in fixed tables only, so a snippet cannot reach anything else.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from uni_train.data_gen.ureason.execution import MAX_LENGTH, ExecutionError, Fuel, Run, bounded

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_BUILTINS: dict[str, Callable[..., Any]] = {
    "len": len, "min": min, "max": max, "sum": sum, "str": str, "int": int, "abs": abs, "sorted": sorted,
    "list": list, "enumerate": lambda items: list(enumerate(items)), 
    "zip": lambda *lists: list(zip(*lists, strict=False)),
    "reversed": lambda items: list(reversed(items)), "range": lambda *bounds: list(_range(*bounds)),
}  # fmt: skip
_METHODS: Mapping[type, frozenset[str]] = {
    list: frozenset({"append", "pop", "insert", "remove", "reverse", "sort", "index", "count", "extend", "copy"}),
    str: frozenset({"upper", "lower", "title", "replace", "split", "join", "strip", "startswith", "endswith", "count"}),
    dict: frozenset({"get", "pop", "keys", "values", "items", "update"}),
}


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


def run(code: str) -> Run:
    """Runs a snippet. ExecutionError for what is outside the part of Python that is known here, or fails in it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ExecutionError(f"not Python: {error}") from error
    walker = _Walker()
    try:
        walker.block(tree.body)
    except ExecutionError:
        raise
    except (_Break, _Continue, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ExecutionError(f"the snippet fails: {type(error).__name__}: {error}") from error
    return Run(walker.variables, tuple(walker.printed))


def _range(*bounds: int) -> range:
    span = range(*bounds)
    if len(span) > MAX_LENGTH:
        raise ExecutionError("the snippet counts too far")
    return span


class _Walker:
    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}
        self.printed: list[str] = []
        self.fuel = Fuel()

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.fuel.burn()
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                result = self.value(value)
                for target in targets:
                    self.assign(target, result)
            case ast.AugAssign(target=target, op=op, value=value):
                before = self.value(_load(target))
                self.assign(target, self.binary(op, before, self.value(value)))
            case ast.If(test=test, body=body, orelse=orelse):
                self.block(body if self.value(test) else orelse)
            case ast.For(target=target, iter=items, body=body, orelse=[]):
                self.loop(body, self.rounds(target, list(self.value(items))))
            case ast.While(test=test, body=body, orelse=[]):
                self.loop(body, iter(lambda: bool(self.value(test)), False))
            case ast.Expr(value=value):
                self.value(value)
            case ast.Delete(targets=[ast.Subscript(value=owner, slice=key)]):
                del self.value(owner)[self.value(key)]
            case ast.Pass():
                pass
            case ast.Break():
                raise _Break
            case ast.Continue():
                raise _Continue
            case _:
                raise ExecutionError(f"line {node.lineno}: {type(node).__name__} is not known here")

    def loop(self, body: list[ast.stmt], rounds: Iterable[Any]) -> None:
        for _ in rounds:
            self.fuel.burn()
            try:
                self.block(body)
            except _Continue:
                continue
            except _Break:
                break

    def rounds(self, target: ast.expr, items: list[Any]) -> Iterator[Any]:
        for item in items:
            self.assign(target, item)
            yield item

    def assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.variables[name] = bounded(value)
            case ast.Subscript(value=owner, slice=key):
                self.value(owner)[self.value(key)] = bounded(value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = list(value)
                if len(values) != len(targets):
                    raise ExecutionError(f"{len(values)} values for {len(targets)} names")
                for one, part in zip(targets, values, strict=True):
                    self.assign(one, part)
            case _:
                raise ExecutionError(f"cannot assign to {type(target).__name__} here")

    def value(self, node: ast.expr) -> Any:
        self.fuel.burn()
        match node:
            case ast.Constant(value=value) if value is None or isinstance(value, bool | int | str):
                return value
            case ast.Name(id=name):
                if name not in self.variables:
                    raise ExecutionError(f"{name} is not defined")
                return self.variables[name]
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand)
            case ast.BoolOp(op=op, values=values):
                result: Any = None
                for one in values:
                    result = self.value(one)
                    if bool(result) != isinstance(op, ast.And):
                        break
                return result
            case ast.Compare(left=left, ops=ops, comparators=rest):
                before = self.value(left)
                for sign, one in zip(ops, rest, strict=True):
                    after = self.value(one)
                    if not _COMPARE[type(sign)](before, after):
                        return False
                    before = after
                return True
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test) else orelse)
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Dict(keys=keys, values=values) if all(key is not None for key in keys):
                return {self.value(key): self.value(one) for key, one in zip(keys, values, strict=True) if key}
            case ast.Subscript(value=owner, slice=ast.Slice(lower=low, upper=high, step=step)):
                bounds = (None if part is None else self.value(part) for part in (low, high, step))
                return self.value(owner)[slice(*bounds)]
            case ast.Subscript(value=owner, slice=key):
                return self.value(owner)[self.value(key)]
            case ast.JoinedStr(values=parts):
                return "".join(self.piece(part) for part in parts)
            case ast.ListComp(elt=element, generators=[ast.comprehension(target=target, iter=items, ifs=tests)]):
                return self.comprehension(element, target, items, tests)
            case ast.Call():
                return bounded(self.call(node))
            case _:
                raise ExecutionError(f"line {node.lineno}: {type(node).__name__} is not known here")

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        if type(op) not in _BINARY:
            raise ExecutionError(f"{type(op).__name__} is not known here")
        if isinstance(op, ast.Mult) and not (isinstance(left, int) and isinstance(right, int)):
            times, repeated = (left, right) if isinstance(left, int) else (right, left)
            if not isinstance(times, int) or times * len(repeated) > MAX_LENGTH:
                raise ExecutionError("the snippet makes something too long")
        return bounded(_BINARY[type(op)](left, right))

    def piece(self, part: ast.expr) -> str:
        match part:
            case ast.Constant(value=str() as text):
                return text
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return str(self.value(value))
            case _:
                raise ExecutionError("a format that is not known here")

    def comprehension(self, element: ast.expr, target: ast.expr, items: ast.expr, tests: list[ast.expr]) -> list[Any]:
        outside = dict(self.variables)
        made = []
        for item in list(self.value(items)):
            self.assign(target, item)
            if all(self.value(test) for test in tests):
                made.append(self.value(element))
        self.variables = outside
        return made

    def call(self, node: ast.Call) -> Any:
        arguments = [self.value(one) for one in node.args]
        named = {one.arg: self.value(one.value) for one in node.keywords if one.arg is not None}
        match node.func:
            case ast.Name(id="print") if not named:
                self.printed.append(" ".join(str(one) for one in arguments))
                return None
            case ast.Name(id=name) if name in _BUILTINS and set(named) <= {"reverse"}:
                return _BUILTINS[name](*arguments, **named)
            case ast.Attribute(value=owner, attr=method):
                of = self.value(owner)
                if method in _METHODS.get(type(of), ()) and set(named) <= {"reverse"}:
                    result = getattr(of, method)(*arguments, **named)
                    return list(result) if method in ("keys", "values", "items") else result
        raise ExecutionError(f"line {node.lineno}: a call that is not known here")


def _load(target: ast.expr) -> ast.expr:
    """The target of an augmented assignment, to be read."""
    match target:
        case ast.Name(id=name):
            return ast.Name(id=name, ctx=ast.Load(), lineno=target.lineno, col_offset=target.col_offset)
        case ast.Subscript(value=owner, slice=key):
            return ast.Subscript(
                value=owner, slice=key, ctx=ast.Load(), lineno=target.lineno, col_offset=target.col_offset
            )
    raise ExecutionError(f"cannot change {type(target).__name__} here")
