"""Rows of published files as pydantic models; what does not fit is named by file, line and key.

class Question(PublishedRow):
    prompt: Text

for place, question in read_rows([folder / "test.jsonl"], Question): ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from uni_train.core.errors import DataError
from uni_train.core.reading_limits import parquet_footer, read_group, read_json, rows_of
from uni_train.data_gen.jsonl import read_objects

_BATCH = 32  # rows of Parquet that are read together, for they may hold images


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

    id: TextOrNumber


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands. batch: of Parquet, the row group, the batch in it and the row in that."""

    path: Path
    line: str
    batch: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        return f"{self.path}, {self.line}"


R = TypeVar("R", bound=PublishedRow)
Raw = dict[str, Any]


def read_rows(
    paths: Iterable[Path],
    kind: type[R],
    shape: str = "",
    *,
    without: tuple[str, ...] = (),
    renamed: Callable[[Place, Raw], Raw] = lambda place, raw: raw,
) -> Iterator[tuple[Place, R]]:
    """(place, row) of files of JSON lines, JSON arrays or Parquet, whose ids differ.

    Args:
        shape: an example of a row, for messages. without: columns of Parquet that are not read. renamed: gives a row
            the keys of `kind`.

    Raises:
        DataError: a file cannot be read or is empty, a row does not fit, or an id occurs twice.
    """
    seen: dict[str, Place] = {}
    for path in paths:
        empty = True
        for place, raw in _raw_rows(path, without):
            row, empty = read_row(kind, place, renamed(place, raw), shape), False
            if row.id in seen:
                raise DataError(f"{place}: the id {row.id} was used in {seen[row.id]}; ids must be unique")
            seen[row.id] = place
            yield place, row
        if empty:
            raise DataError(f"{path} has no rows" + (f"; expected {shape}" if shape else ""))


def _raw_rows(path: Path, without: tuple[str, ...]) -> Iterator[tuple[Place, Raw]]:
    if path.suffix == ".parquet":
        yield from _of_parquet(path, without)
    elif path.suffix == ".json":
        try:
            rows = read_json(path)
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read: {error}") from error
        if not isinstance(rows, list):
            raise DataError(f"{path} must be an array of records")
        for number, row in enumerate(rows):
            place = Place(path, f"record {number}")
            if not isinstance(row, dict):
                raise DataError(f"{place} must be an object, not {type(row).__name__}")
            yield place, row
    else:
        for number, row in read_objects(path):
            yield Place(path, f"line {number}"), row


def _of_parquet(path: Path, without: tuple[str, ...]) -> Iterator[tuple[Place, Raw]]:
    import pyarrow as pa

    try:
        footer, number = parquet_footer(path), 0
        columns = [name for name in footer.schema.to_arrow_schema().names if name not in without]
        for group in range(footer.num_row_groups):
            table = read_group(path, group, columns)
            for batch_number, start in enumerate(range(0, len(table), _BATCH)):
                for index, row in enumerate(rows_of(path, [table.slice(start, _BATCH)])):
                    number += 1
                    yield Place(path, f"row {number}", (group, batch_number, index)), row
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is no Parquet file, perhaps a pointer of Git LFS: download it again") from error


@lru_cache(maxsize=6)  # the columns that hold images
def column_of(path: Path, group: int, batch_number: int, key: str) -> list[Any]:
    """One column of a batch of Parquet, read again. Raises OSError, ArrowException, StopIteration."""
    table = read_group(path, group, [key]).slice(batch_number * _BATCH, _BATCH)
    return [row[key] for row in rows_of(path, [table])]


def read_row(kind: type[R], place: Place | str, raw: Mapping[str, Any], shape: str = "") -> R:
    """The row as `kind`. Raises DataError, which names the place and the first key that is missing or does not fit."""
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


def shown(value: Any) -> str:
    """A value in a message: JSON of at most 60 letters."""
    return json.dumps(value, default=lambda other: f"a {type(other).__name__}", ensure_ascii=False)[:60]
