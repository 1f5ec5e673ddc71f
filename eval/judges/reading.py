"""Reading a judge's JSON: alone or in one code fence, valid by its schema, or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from uni_train.eval.judges.wording import without_thought

_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*(?:json\w*)?\s*", re.IGNORECASE)
_BACKSLASH = re.compile(r'\\(["\\/]|u[0-9a-fA-F]{4}|[bfnrt](?![A-Za-z]))?')


class JsonReader:
    """Turns a reply into what its JSON says; ValueError says what is wrong with it, in words the judge can act on.

    Text around a fence is allowed, text around bare JSON is not: taking the first thing in braces out of prose reads
    answers that were never given. A key that appears twice is an error.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema.validators import validator_for

        validator = validator_for(schema)
        validator.check_schema(schema)
        self._validator = validator(schema)

    def __call__(self, text: str) -> Any:
        said = without_thought(text)
        try:
            value = _value(said)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not JSON ({error.msg} at line {error.lineno}, column {error.colno})") from error
        except RecursionError as error:
            raise ValueError("its JSON is nested too deeply") from error
        problems = sorted(self._validator.iter_errors(value), key=lambda found: list(map(str, found.absolute_path)))
        if problems:
            place = "/".join(map(str, problems[0].absolute_path)) or "the top"
            raise ValueError(f"its JSON does not fit: at {place}, {problems[0].message}")
        return value


def _value(said: str) -> Any:
    try:
        return _decoded(said)
    except json.JSONDecodeError as error:
        with suppress(json.JSONDecodeError):  # LaTeX: a backslash that escapes nothing stands for itself
            return _decoded(_BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", said))
        raise error


def _decoded(said: str) -> Any:
    """JSON alone or in a fence, whose end is looked for behind the JSON: backticks may be in its texts."""
    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
    try:
        return decoder.decode(said)
    except json.JSONDecodeError:
        opening = _FENCE.search(said)
        if opening is None or said.startswith("{"):
            raise
    value, end = decoder.raw_decode(said, opening.end())
    rest = said[end:].lstrip()
    if not rest.startswith(opening[1]):
        raise json.JSONDecodeError("the code block does not end after its JSON", said, end)
    if _FENCE.search(rest.removeprefix(opening[1])):
        raise ValueError("it holds several code blocks where one is wanted")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
