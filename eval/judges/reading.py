"""Reading a judge's JSON: alone or in one code fence, valid by its schema, or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_REASONED_ALOUD = re.compile(r"<think>.*?</think>", re.DOTALL)


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
        said = _REASONED_ALOUD.sub("", text).strip()
        fenced = _FENCED.findall(said)
        if len(fenced) > 1:
            raise ValueError(f"it holds {len(fenced)} code blocks where one is wanted")
        try:
            value = json.loads(fenced[0] if fenced else said, object_pairs_hook=_once, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not JSON ({error.msg} at line {error.lineno}, column {error.colno})") from error
        except RecursionError as error:
            raise ValueError("its JSON is nested too deeply") from error
        problems = sorted(self._validator.iter_errors(value), key=lambda found: list(map(str, found.absolute_path)))
        if problems:
            place = "/".join(map(str, problems[0].absolute_path)) or "the top"
            raise ValueError(f"its JSON does not fit: at {place}, {problems[0].message}")
        return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
