"""Every key in one place, from the dataclasses: a page of tables, and a JSON schema for editors."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from uni_train.config.build import adapter, to_plain
from uni_train.config.insight import InsightConfig
from uni_train.config.kinds import KINDS, kind_named
from uni_train.config.messages import described, limits_of, members
from uni_train.config.schema import EvalConfig, RunConfig

_FIELD = re.compile(r"    (\w+): [^#]*(?:  # (.*))?")


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its dotted name, what it may be, its default as YAML has it ("required": none), and what it is."""

    name: str
    allowed: str
    default: str
    meaning: str


def keys(cls: type, prefix: str = "", *, nested: bool = True) -> Iterator[Key]:
    """The keys of a section, and with `nested` of those in it. `[]` is an index, `<name>` a name of one's own."""
    hints, comments = typing.get_type_hints(cls, include_extras=True), _comments(cls)
    for field in dataclasses.fields(cls):
        hint, name = hints[field.name], f"{prefix}{field.name}"
        section, inside = _section(hint, name)
        words = any(typing.get_origin(member) is typing.Literal for member in members(hint))
        if section is None or words or inside != f"{name}.":
            yield Key(name, _allowed(hint), _default(field), comments.get(field.name, ""))
        if nested and section is not None and section is not cls:  # a judge has judges
            yield from keys(section, inside)


def page() -> str:
    """All keys as Markdown."""
    lines = [
        "# All keys",
        "",
        "`uni_train recipes --keys` writes this page; a test compares the two. How keys are decided: "
        "[configuration keys](config.md). A line has the key with its default, its type and range, and its meaning.",
        "",
        "## Of every recipe",
        "",
        *_list(list(keys(RunConfig))),
    ]
    common = {field.name for field in dataclasses.fields(RunConfig)}
    judge = {key.name: key.allowed for key in keys(RunConfig) if key.name.startswith("judge.")}
    users: dict[Key, list[str]] = {}
    for name in KINDS.names():
        for key in keys(kind_named(name).config):
            before, _, last = key.name.partition(".judge.")
            if last and judge.get(f"judge.{last}") == key.allowed:  # told once
                key = Key(f"{before}.judge", "as `judge`", "null", "")
            if key.name.split(".")[0].removesuffix("[]") not in common and name not in users.setdefault(key, []):
                users[key].append(name)
    for names in sorted(dict.fromkeys(map(tuple, users.values())), key=lambda names: (-len(names), names)):
        lines += ["", f"## {'kind' if len(names) == 1 else 'kinds'}: {', '.join(names)}", ""]
        if len(names) == 1:
            lines += [f"{(kind_named(names[0]).config.__doc__ or '').splitlines()[0]}", ""]
        lines += _list([key for key, kinds in users.items() if tuple(kinds) == names])
    asked = [key for key in keys(EvalConfig) if not key.name.startswith(("judge.", "logger."))]
    lines += ["", "## Of `uni_train eval`", "", "`judge` and `logger` are as above.", "", *_list(asked)]
    shared = ("sampling", "batch", "remote", "retry_failed", "judge")
    asked = [key for key in keys(InsightConfig) if key.name.split(".")[0] not in shared]
    about = f"{', '.join(f'`{name}`' for name in shared)} are those of `eval`."
    lines += ["", "## Of `insight`", "", about, "", *_list(asked)]
    return "\n".join(lines) + "\n"


def json_schema() -> dict[str, Any]:
    """What a recipe file may hold, for editors: any part of the keys of its `kind`, and `${...}` for any value."""
    from pydantic import TypeAdapter

    configs = {name: kind_named(name).config for name in KINDS.names()}
    _, schemas = TypeAdapter.json_schemas([(name, "validation", adapter(cls)) for name, cls in configs.items()])  # type: ignore[arg-type]
    sections = schemas["$defs"]
    for section in sections.values():
        section.pop("required", None)
        section["properties"] = {
            name: value if name == "kind" else _or_interpolated(value) for name, value in section["properties"].items()
        }
    for cls in configs.values():
        sections[cls.__name__]["properties"]["defaults"] = {"type": "array"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recipe of uni_train",
        "type": "object",
        "properties": {"kind": {"enum": list(configs)}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{cls.__name__}"},
            }
            for name, cls in configs.items()
        ],
        "$defs": sections,
    }


def _or_interpolated(schema: dict[str, Any]) -> dict[str, Any]:
    """The same, and `${...}` in place of every value in it."""
    if "$ref" in schema:
        return schema
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = _or_interpolated(schema[key])
    for key in ("prefixItems", "anyOf"):
        if key in schema:
            schema[key] = [_or_interpolated(subschema) for subschema in schema[key]]
    about = {key: schema.pop(key) for key in ("title", "default") if key in schema}
    return about | {"anyOf": [schema, {"type": "string", "pattern": r"\$\{.+\}"}]}


def _section(hint: Any, name: str) -> tuple[type | None, str]:
    """The section that a key is or has many of, and what its keys' names begin with."""
    for member in members(hint):
        if isinstance(member, type) and dataclasses.is_dataclass(member):
            return member, f"{name}."
        if typing.get_origin(member) is tuple:
            item = typing.get_args(member)[0]
            if isinstance(item, type) and dataclasses.is_dataclass(item):
                return item, f"{name}[]."
        if typing.get_origin(member) is dict:
            return _section(typing.get_args(member)[1], f"{name}.<name>")
    return None, ""


_TYPES: dict[type, str] = {kind: kind.__name__ for kind in (int, float, str, bool)}


def _allowed(hint: Any) -> str:
    limits = limits_of(hint)
    if limits is None:
        for member in members(hint):
            if typing.get_origin(member) in (tuple, dict):
                limits = limits_of(typing.get_args(member)[-1]) or limits_of(typing.get_args(member)[0])
    words = described(hint, _TYPES, "")
    if limits is None:
        return words
    low = f"[{_number(limits.ge)}" if limits.ge is not None else f"({_number(limits.gt)}"
    high = f"{_number(limits.le)}]" if limits.le is not None else f"{_number(limits.lt)})"
    return f"{words} {low}, {high}"


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _default(field: dataclasses.Field[Any]) -> str:
    import yaml

    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    text: str = yaml.safe_dump(to_plain(value), default_flow_style=True, width=10_000)
    return text.removesuffix("...\n").strip()


def _comments(cls: type) -> dict[str, str]:
    """What the source says behind each field, or in the lines above it."""
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        above: list[str] = []
        for line in inspect.getsource(base).splitlines():
            field = _FIELD.fullmatch(line)
            if line.startswith("    # "):
                above.append(line.removeprefix("    # "))
            elif field is not None:
                meanings[field[1]] = field[2] or " ".join(above)
                above = []
    return meanings


def _list(rows: list[Key]) -> list[str]:
    lines = []
    for key in rows:
        name = f"`{key.name}` required," if key.default == "required" else f"`{key.name}={key.default}`"
        lines.append(f"- {name} {key.allowed}" + f": {key.meaning.replace('<', '&lt;')}" * bool(key.meaning))
    return lines
