"""Rows of published files as pydantic models; what does not fit is named by file, line and key.

class Question(PublishedRow):
    id: TextOrNumber
    prompt: Text

for place, question in read_file(folder / "test.jsonl", Question): ...
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.jsonl import read_objects


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("expected some text")
    return value


Text = Annotated[str, AfterValidator(_filled)]
"""A text that is not blank."""
TextOrNumber = Annotated[Text, BeforeValidator(lambda given: str(given) if type(given) in (int, float) else given)]
"""The same; a number counts as the text that it is written with."""


class PublishedRow(BaseModel):
    """One row of a published file. Types are strict: true is no number. Other keys are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", arbitrary_types_allowed=True)


R = TypeVar("R", bound=PublishedRow)


def read_row(kind: type[R], place: str, raw: Mapping[str, Any], shape: str = "") -> R:
    """The row as `kind`.

    Args:
        place: where it stands, such as "test.jsonl, line 2". shape: an example of a row.

    Raises:
        DataError: names the place and the first key that is missing or does not fit.
    """
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key, *inside = first["loc"]
    if first["type"] == "missing":
        there = ", ".join(map(str, raw)) or "none"
        raise DataError(f'{place}: no "{key}"; its keys are {there}' + (f"; expected {shape}" if shape else ""))
    number = next((index for index in inside if isinstance(index, int)), None)
    what = f'"{key}"' if number is None else f'number {number + 1} of "{key}"'
    why = first["msg"].removeprefix("Value error, ").replace("Input should be a valid", "expected a")
    raise DataError(f"{place}: {what} is {shown(first['input'])}; {why}")


def read_file(path: Path, kind: type[R]) -> Iterator[tuple[str, R]]:
    """(place, row) of each line of a file of JSON lines. Raises DataError as `read_row`."""
    for number, raw in read_objects(path):
        place = f"{path}, line {number}"
        yield place, read_row(kind, place, raw)


def shown(value: Any) -> str:
    """A value in a message: JSON of at most 60 letters."""
    return json.dumps(value, default=lambda other: f"a {type(other).__name__}", ensure_ascii=False)[:60]
