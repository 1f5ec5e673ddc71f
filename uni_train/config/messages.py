"""What pydantic refuses, in words: the key, where its value came from, what it may be, and what was probably meant."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast

from annotated_types import Interval

from uni_train.core.errors import UsageError, did_you_mean, nearest
from uni_train.data_gen.registry import TASKS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from uni_train.config.schema import ModelConfig

Where = Callable[[str], str]
"""Tells where a dotted key was given: "override lr=2", "recipes/x.yaml"."""

_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")


def wrong(message: str, key: str, where: Where, hint: str | None = None) -> UsageError:
    """The error about a key, with the place that gave its value."""
    place = where(key)
    return UsageError(f"{message} ({place})" if place else message, hint)


Rule = tuple[str, object, str, str | None]
"""A key, whether its value is wrong, the message, and a hint."""


def check_rules(rules: Iterable[Rule], where: Where) -> None:
    """Raises UsageError: the first rule that is broken."""
    for key, broken, message, hint in rules:
        if broken:
            raise wrong(message, key, where, hint)


def check_known(name: str | None, known: Iterable[str], noun: str, key: str, where: Where) -> None:
    """Raises UsageError for a name that is not known; None is no name."""
    names = tuple(known)
    if name is not None and name not in names:
        raise wrong(f"{key}: unknown {noun} {name}", key, where, did_you_mean(name, names, f"{noun}s"))


def check_thinks(model: ModelConfig, asked: str, key: str, where: Where) -> None:
    """Raises UsageError for a model that draws by no thoughts, where `asked` needs them."""
    if not model.thinks:
        raise wrong(f"{asked} needs thoughts, and model={model.name} cannot think", key, where, "Choose another model.")


def check_draws(model: ModelConfig, tasks: Iterable[str], where: Where) -> None:
    """Raises UsageError where an editor is to draw prompts of tasks that show no image."""
    for name in tasks:
        if model.edits and not TASKS.get(name).edits:
            message = f"model={model.name} edits images, and the prompts of {name} have none"
            shown = ", ".join(task for task in TASKS.names() if TASKS.get(task).edits)
            hint = f"Choose model=nano or model=bagel_7b, or tasks that show an image: {shown}."
            raise wrong(message, "model", where, hint)


def refused(cls: type, values: Any, errors: Sequence[ErrorDetails], where: Where) -> UsageError:
    """The first of pydantic's errors about `values` for `cls`. Unknown keys come first: others may follow from them."""
    for error in errors:
        if error["type"] == "unexpected_keyword_argument":
            parent, kind = _place(cls, error["loc"][:-1])
            return _unknown_key(parent, str(error["loc"][-1]), kind, where, cls)
    error = errors[0]
    if error["type"] == "missing":
        key, kind = _place(cls, error["loc"][:-1])
        if dataclasses.is_dataclass(kind):
            return wrong(f"missing key {join(key, str(error['loc'][-1]))}: it has no default", key, where)
    else:
        key, kind = _place(cls, error["loc"])
    value = _value(values, key)
    of_key = [error for error in errors if _place(cls, error["loc"])[0] == key]
    limits = limits_of(kind)
    if limits is not None and any(error["type"] in _RANGE for error in of_key):
        return wrong(f"{key} must be {_ranged(limits, value, _whole(kind))}, not {_shown(value)}", key, where)
    if typing.get_origin(kind) is Literal:
        options = typing.get_args(kind)
        close = nearest(value, options) if isinstance(value, str) else None
        hint = f"Did you mean {close}?" if close else None
        return wrong(f"{key} must be one of {', '.join(map(str, options))}, not {_shown(value)}", key, where, hint)
    if typing.get_origin(kind) is tuple and isinstance(value, list) and typing.get_args(kind)[-1] is not Ellipsis:
        return wrong(f"{key} must be {described(kind)}, not of {len(value)}", key, where)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return wrong(f"{key} must be a section with keys ({_names(kind)}), not {_shown(value)}", key, where)
    return wrong(f"{key} must be {described(kind)}, not {_shown(value)}", key, where)


def _place(cls: type, loc: Sequence[int | str]) -> tuple[str, Any]:
    """The dotted key that pydantic's `loc` leads to, and its annotation. Types that were tried are no keys."""
    key, kind = "", cls
    for part in loc:
        below = _below(kind, part)
        if below is None:
            break
        key, kind = join(key, str(part)), below
    return key, kind


def _below(kind: Any, part: int | str) -> Any:
    """The annotation of a key or an index within an annotation; None: there is no such."""
    for member in members(kind):
        if dataclasses.is_dataclass(member):
            hint = typing.get_type_hints(member, include_extras=True).get(str(part))
            if hint is not None:
                return _without_null(hint)
        elif typing.get_origin(member) is dict:
            return _without_null(typing.get_args(member)[1])
        elif typing.get_origin(member) is tuple and isinstance(part, int):
            arguments = typing.get_args(member)
            return arguments[0] if arguments[-1] is Ellipsis else dict(enumerate(arguments)).get(part)
    return None


def _without_null(kind: Any) -> Any:
    options = [member for member in members(kind) if member is not type(None)]
    return options[0] if len(options) == 1 else kind


def _value(values: Any, key: str) -> Any:
    for part in key.split(".") if key else ():
        values = values[int(part)] if isinstance(values, list | tuple) else values[part]
    return values


def limits_of(kind: Any) -> Interval | None:
    """The range of a number's annotation."""
    for member in members(kind):
        for bound in getattr(member, "__metadata__", ()):
            if isinstance(bound, Interval):
                return bound
    return None


def _whole(kind: Any) -> bool:
    """Whether an annotation is of whole numbers. Its bounds do not tell: typing takes 0 to 1 and 0.0 to 1.0 for one."""
    return any(member is int or typing.get_args(member)[:1] == (int,) for member in members(kind))


def _ranged(limits: Interval, value: float, whole: bool) -> str:
    """The part of a range that a value is out of."""
    low, high, above, below = (cast(Any, limit) for limit in (limits.ge, limits.le, limits.gt, limits.lt))
    if whole and low is not None and high is not None and high - low < 10:
        return f"one of {', '.join(str(n) for n in range(low, high + 1))}"
    if low is not None and high is not None and (high <= 1 or math.isnan(value)):
        return f"between {low:g} and {high:g}"
    if high is not None and value > high:
        return f"at most {high:,}"
    if below is not None and value >= below:
        return f"below {below:g}"
    return f"at least {low:g}" if low is not None else f"greater than {above:g}"


def members(kind: Any) -> tuple[Any, ...]:
    """The types that an annotation allows."""
    return typing.get_args(kind) if typing.get_origin(kind) in (Union, types.UnionType) else (kind,)


def _unknown_key(parent: str, name: str, cls: Any, where: Where, root: type) -> UsageError:
    key = join(parent, name)
    siblings = [f.name for kind in members(cls) if dataclasses.is_dataclass(kind) for f in dataclasses.fields(kind)]
    known = _all_keys(root)
    same_leaf = [other for other in known if other.rpartition(".")[2] == name]
    close = nearest(name, siblings)
    meant = join(parent, close) if close else None
    if meant is None or (same_leaf and not parent):
        meant = same_leaf[0] if same_leaf else nearest(key, known)
    hint = f"Known keys{f' of {parent}' if parent else ''}: {', '.join(siblings)}."
    return wrong(f"unknown key {key}", key, where, f"Did you mean {meant}? {hint}" if meant else hint)


def _all_keys(cls: type, key: str = "") -> list[str]:
    keys: list[str] = []
    for name, kind in typing.get_type_hints(cls).items():
        path = join(key, name)
        keys.append(path)
        if dataclasses.is_dataclass(kind):
            keys.extend(_all_keys(typing.cast(type, kind), path))
    return keys


_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def described(kind: Any, words: Mapping[type, str] = _WORDS, choice: str = "one of ") -> str:
    """A type in words that a person who writes YAML knows: those of `words` for scalars, `choice` before names."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return described(arguments[0], words, choice)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if arg is type(None) else described(arg, words, choice) for arg in arguments)
    if origin is Literal:
        names = ", ".join(map(str, arguments))
        return names if len(arguments) == 1 else f"{choice}{names}"
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            item = arguments[0]
            return "a list" + ("" if dataclasses.is_dataclass(item) else f", each {described(item, words, choice)}")
        return f"a list of {len(arguments)} values"
    if origin is dict:
        return "a section of key: value"
    if dataclasses.is_dataclass(kind):
        return "a section with keys"
    return words[kind]


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def _names(cls: type) -> str:
    return ", ".join(field.name for field in dataclasses.fields(cls))


def join(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name
