"""From plain YAML values to the dataclasses of schema.py, with errors that name the key, its place and a remedy.

Types, unknown keys, ranges, and the rules that all recipes share are checked here, those of a kind in its own `check`.
The rest of the code trusts what it gets.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union

from uni_train.config.kinds import KINDS, kind_named, kind_of, load_plugins_of
from uni_train.config.schema import JudgeConfig, RunConfig
from uni_train.errors import UsageError, nearest

S = TypeVar("S")
Where = Callable[[str], str]
"""Tells where a dotted key was given: "override lr=2", "recipes/x.yaml"."""


def build(values: Mapping[str, Any], where: Where = lambda key: "") -> RunConfig:
    """The checked configuration. `values` is plain data (as YAML gives it), complete and without interpolations.

    Raises UsageError naming the first offending key.
    """
    load_plugins_of(values)
    kind = values.get("kind")
    if kind not in KINDS.names():
        raise wrong(f"kind must be one of {', '.join(KINDS.names())}, not {kind!r}", "kind", where)
    config: RunConfig = build_section(kind_named(str(kind)).config, values, where)
    _check_common(config, where)
    kind_of(config).check(config, where)
    return config


def build_section(cls: type[S], values: Any, where: Where = lambda key: "") -> S:
    """A part of a configuration, with types and ranges checked, but no rules between keys. Raises UsageError."""
    section: S = _build_dataclass(cls, values, "", where, cls)
    _check_ranges(section, "", where)
    return section


def to_plain(config: Any) -> Any:
    """The configuration as dicts, lists and scalars: `build(to_plain(c)) == c`."""
    if dataclasses.is_dataclass(config):
        return {field.name: to_plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return {key: to_plain(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [to_plain(value) for value in config]
    return config


def takes_text(cls: type, key: str) -> bool:
    """Whether a value of the dotted `key` of `cls` may be any text."""
    kinds: list[Any] = [cls]
    for part in key.split("."):
        found: list[Any] = []
        for kind in kinds:
            if dataclasses.is_dataclass(kind):
                hint = typing.get_type_hints(kind).get(part)
                found += [] if hint is None else [hint]
            elif typing.get_origin(kind) is dict:
                found.append(typing.get_args(kind)[1])
            elif typing.get_origin(kind) is tuple and part.isdigit():
                found.append(typing.get_args(kind)[0])
        kinds = [member for kind in found for member in _members(kind)]
    return str in kinds


def _members(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) in (Union, types.UnionType) else (kind,)


def wrong(message: str, key: str, where: Where, hint: str | None = None) -> UsageError:
    """The error about a key, with the place that gave its value."""
    place = where(key)
    return UsageError(f"{message} ({place})" if place else message, hint)


# --- unknown keys and wrong types -----------------------------------------------------------------------------------


def _build_dataclass(cls: type, values: Any, key: str, where: Where, root: type) -> Any:
    if not isinstance(values, Mapping):
        raise wrong(f"{key} must be a section with keys ({_names(cls)}), not {_shown(values)}", key, where)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        if name not in fields:
            raise _unknown_key(_join(key, str(name)), cls, where, root)
    annotations = typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for name, field in fields.items():
        path = _join(key, name)
        if name in values:
            arguments[name] = _build_value(annotations[name], values[name], path, where, root)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise wrong(f"missing key {path}: it has no default", key, where)
    return cls(**arguments)


def _build_value(kind: Any, value: Any, key: str, where: Where, root: type) -> Any:
    """`value` as the annotated type, or a UsageError. Nothing is converted but int to float and list to tuple."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        others = [argument for argument in arguments if argument is not type(None)]
        for argument in others[:-1]:
            try:
                return _build_value(argument, value, key, where, root)
            except UsageError:
                continue
        try:
            return _build_value(others[-1], value, key, where, root)
        except UsageError:
            if len(others) == 1:
                raise
            raise _wrong_type(kind, value, key, where) from None
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(typing.cast(type, kind), value, key, where, root)
    if origin is Literal:
        # "1" == 1 is False but True == 1 is not what is meant
        if not any(type(value) is type(option) and value == option for option in arguments):
            hint = None
            if isinstance(value, str) and all(isinstance(option, str) for option in arguments):
                close = nearest(value, arguments)
                hint = f"Did you mean {close}?" if close else None
            raise wrong(f"{key} must be one of {', '.join(map(str, arguments))}, not {_shown(value)}", key, where, hint)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong_type(kind, value, key, where)
        if arguments[-1] is Ellipsis:
            return tuple(_build_value(arguments[0], v, _join(key, str(i)), where, root) for i, v in enumerate(value))
        if len(value) != len(arguments):
            raise wrong(f"{key} must be a list of {len(arguments)} values, not of {len(value)}", key, where)
        return tuple(
            _build_value(argument, v, _join(key, str(i)), where, root)
            for i, (argument, v) in enumerate(zip(arguments, value, strict=True))
        )
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong_type(kind, value, key, where)
        return {str(k): _build_value(arguments[1], v, _join(key, str(k)), where, root) for k, v in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (int, float, str, bool) and type(value) is kind:
        return value
    raise _wrong_type(kind, value, key, where)


def _unknown_key(key: str, cls: type, where: Where, root: type) -> UsageError:
    parent, _, name = key.rpartition(".")
    siblings = [field.name for field in dataclasses.fields(cls)]
    known = _all_keys(root)
    same_leaf = [other for other in known if other.rpartition(".")[2] == name]
    close = nearest(name, siblings)
    meant = _join(parent, close) if close else None
    if meant is None or (same_leaf and not parent):
        meant = same_leaf[0] if same_leaf else nearest(key, known)
    hint = f"Known keys{f' of {parent}' if parent else ''}: {', '.join(siblings)}."
    return wrong(f"unknown key {key}", key, where, f"Did you mean {meant}? {hint}" if meant else hint)


def _all_keys(cls: type, key: str = "") -> list[str]:
    keys: list[str] = []
    for name, kind in typing.get_type_hints(cls).items():
        path = _join(key, name)
        keys.append(path)
        if dataclasses.is_dataclass(kind):
            keys.extend(_all_keys(typing.cast(type, kind), path))
    return keys


def _wrong_type(kind: Any, value: Any, key: str, where: Where) -> UsageError:
    return wrong(f"{key} must be {_described(kind)}, not {_shown(value)}", key, where)


def _described(kind: Any) -> str:
    """A type in words that a person who writes YAML knows."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if argument is type(None) else _described(argument) for argument in arguments)
    if origin is Literal:
        names = ", ".join(map(str, arguments))
        return names if len(arguments) == 1 else f"one of {names}"
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            item = arguments[0]
            return "a list" + ("" if dataclasses.is_dataclass(item) else f", each {_described(item)}")
        return f"a list of {len(arguments)} values"
    if origin is dict:
        return "a section of key: value"
    if dataclasses.is_dataclass(kind):
        return "a section with keys"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[kind]


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def _names(cls: type) -> str:
    return ", ".join(field.name for field in dataclasses.fields(cls))


def _join(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


# --- ranges and rules -----------------------------------------------------------------------------------------------


def _check_ranges(config: Any, key: str, where: Where) -> None:
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), _join(key, field.name)
        _check_value(value, path, field.metadata, where)


def _check_value(value: Any, key: str, limits: Mapping[str, Any], where: Where) -> None:
    if dataclasses.is_dataclass(value):
        _check_ranges(value, key, where)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _check_value(item, _join(key, name), limits, where)
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            _check_value(item, _join(key, str(i)), limits, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high, above = limits.get("low"), limits.get("high"), limits.get("above")
        if (
            not math.isfinite(value)
            or (low is not None and value < low)
            or (high is not None and value > high)
            or (above is not None and value <= above)
        ):
            raise wrong(f"{key} must be {_limits(low, high, above)}, not {value}", key, where)


def _limits(low: float | None, high: float | None, above: float | None) -> str:
    if low is not None and high is not None:
        if isinstance(low, int) and isinstance(high, int):
            return f"one of {', '.join(str(n) for n in range(low, high + 1))}"
        return f"between {low:g} and {high:g}"
    if low is not None:
        return f"at least {low:g}"
    return f"greater than {above:g}" if above is not None else "a finite number"


def _check_common(config: RunConfig, where: Where) -> None:
    if config.name is not None:
        _check_name(config.name, where)
    low, high = config.model.sampling.cfg_interval
    if low > high:
        raise wrong(f"model.sampling.cfg_interval starts at {low} after its end {high}", "model.sampling", where)
    architecture = config.model.architecture
    if architecture.hidden_size % (2 * architecture.heads):
        raise wrong(
            f"model.architecture.hidden_size {architecture.hidden_size} is no even multiple of heads "
            f"{architecture.heads} (rope turns pairs of channels)",
            "model.architecture.hidden_size",
            where,
        )
    if architecture.heads % architecture.kv_heads:
        raise wrong(
            f"model.architecture.heads {architecture.heads} is no multiple of kv_heads {architecture.kv_heads}",
            "model.architecture.kv_heads",
            where,
        )
    token = architecture.latent_downsample * architecture.latent_patch
    if architecture.image_size % token:
        raise wrong(
            f"model.architecture.image_size {architecture.image_size} is no multiple of a token's {token} pixels",
            "model.architecture.image_size",
            where,
        )
    if config.model.editing is not None and config.model.family != "qwen_image_edit":
        raise wrong(f"model.editing has no meaning for a {config.model.family}", "model.editing", where)
    for key in ("sets", "modes"):
        if not getattr(config.evaluation, key):
            raise wrong(f"evaluation.{key} is empty: nothing would be measured", f"evaluation.{key}", where)
    targets = config.lora.targets
    if targets.startswith("re:"):
        try:
            re.compile(targets.removeprefix("re:"))
        except re.error as error:
            raise wrong(f"lora.targets is no regular expression: {error}", "lora.targets", where) from None
    elif targets not in ("understanding", "generation", "both"):
        message = f"lora.targets must be understanding, generation, both or re:PATTERN, not {targets!r}"
        raise wrong(message, "lora.targets", where)
    strategy = config.strategy
    if strategy.offload_optimizer and not strategy.kind.startswith("deepspeed_"):
        raise wrong(
            f"strategy.offload_optimizer has no meaning for {strategy.kind}",
            "strategy.offload_optimizer",
            where,
            "deepspeed_zero1, deepspeed_zero2 and deepspeed_zero3 have it; fsdp2 has offload_weights.",
        )
    if strategy.offload_weights and strategy.kind not in ("deepspeed_zero3", "fsdp2"):
        raise wrong(
            f"strategy.offload_weights has no meaning for {strategy.kind}",
            "strategy.offload_weights",
            where,
            "deepspeed_zero3 and fsdp2 have it.",
        )
    if config.ema is not None and config.ema >= 1:
        raise wrong("ema must be below 1: at 1 the average never moves", "ema", where)
    if config.judge is not None:
        _check_judge(config.judge, where)
    elif config.data.world == "everyday" and kind_of(config).evaluates(config):
        raise wrong(
            "no program can read images of the everyday world, and no judge is given",
            "judge",
            where,
            "judge={address:'http://HOST:PORT/v1#MODEL'}, or judge={checkpoint:FOLDER}.",
        )


def _check_judge(judge: JudgeConfig, where: Where) -> None:
    if (judge.address is None) == (judge.checkpoint is None):
        raise wrong(
            "judge needs one of address and checkpoint",
            "judge",
            where,
            "\"judge.address='http://HOST:PORT/v1#MODEL'\", or judge.checkpoint=FOLDER; the other one is null.",
        )
    if judge.address is not None and not all(judge.address.rpartition("#")):
        raise wrong("judge.address does not say which model", "judge.address", where, "http://HOST:PORT/v1#MODEL.")
    if judge.question is not None:
        raise wrong("judge.question has no meaning here: the paper's own are asked", "judge.question", where)


def _check_name(name: str, where: Where) -> None:
    if not name or name.startswith(".") or "/" in name or "\\" in name or "\0" in name:
        raise wrong(f"name must be usable as a folder name, not {name!r}", "name", where)
