"""JSON lines in the published UniSandbox schema, and our own items with all their facts.

Published: maths rows are {"Question", "Answer", "id"}; a mapping pair is two lines that share "ID", one with
Question_A, the other with Question_B, each with its "Answer". Every reading error names the file, the line and what
was expected. Writing is atomic: a temporary file beside the target, renamed when complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.core.errors import DataError
from uni_train.core.reading_limits import Unreadable, parse_json, read_lines
from uni_train.data_gen.task import Item

MATHS_SHAPE = '{"Question": "...", "Answer": "4 chairs", "id": "1"}'
MAPPING_SHAPE = '{"ID": "1", "Question_A" or "Question_B": "...", "Answer": "Apples"}'


@dataclass(frozen=True, slots=True)
class MathsRow:
    """One published maths question; `line` counts from 1."""

    id: str
    question: str
    answer: str
    line: int


@dataclass(frozen=True, slots=True)
class MappingRow:
    """One question of a published mapping pair. which: "A" or "B"; both: the line carries the two questions at once."""

    id: str
    which: str
    question: str
    answer: str
    line: int
    both: bool = False


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line that is not blank."""
    try:
        for number, line in read_lines(path):
            yield number, _object(line, path, number)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        value = parse_json(line, path, number)
    except Unreadable as error:
        raise DataError(f"{error}; expected one complete JSON object a line") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}, line {number}: a {type(value).__name__}; expected a JSON object in braces")
    return value


def _text(path: Path, number: int, row: Mapping[str, Any], key: str, shape: str) -> str:
    if key not in row:
        raise DataError(f'{path}, line {number}: no "{key}"; expected {shape}')
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f'{path}, line {number}: "{key}" is {json.dumps(value)[:40]}; expected text')
    return str(value)


def read_published(path: Path) -> list[MathsRow] | list[MappingRow]:
    """All rows of a published maths or mapping file; which of the two is known by the keys of the first row.

    Checked here: the keys and their types, ids that occur twice (a mapping ID may once for A and once for B).
    """
    path = Path(path)
    maths: list[MathsRow] = []
    mapping: list[MappingRow] = []
    kind = ""
    seen: dict[str, int] = {}
    for number, row in read_objects(path):
        if not kind:
            kind = _kind(path, number, row)
        if kind == "maths":
            key = _text(path, number, row, "id", MATHS_SHAPE)
            question = _text(path, number, row, "Question", MATHS_SHAPE)
            maths.append(MathsRow(key, question, _text(path, number, row, "Answer", MATHS_SHAPE), number))
        else:
            key = _text(path, number, row, "ID", MAPPING_SHAPE)
            present = [which for which in "AB" if f"Question_{which}" in row]
            if not present:
                raise DataError(f"{path}, line {number}: neither Question_A nor Question_B; expected {MAPPING_SHAPE}")
            which = present[0]
            question = _text(path, number, row, f"Question_{which}", MAPPING_SHAPE)
            answer = _text(path, number, row, "Answer", MAPPING_SHAPE)
            mapping.append(MappingRow(key, which, question, answer, number, both=len(present) == 2))
            key = f"{key}/{which}"
        if key in seen:
            raise DataError(
                f"{path}, line {number}: the id {key} was used before, in line {seen[key]}; give every row its own"
            )
        seen[key] = number
    if not kind:
        raise DataError(f"{path} has no rows; expected lines such as {MATHS_SHAPE}")
    return maths if kind == "maths" else mapping


def schema_of(row: Mapping[str, Any]) -> str:
    """What a row is by its keys: "items" (of `data make`), "mapping" or "maths" (published); "" for anything else."""
    if "prompt" in row and "facts" in row:
        return "items"
    if "Question_A" in row or "Question_B" in row:
        return "mapping"
    return "maths" if "Question" in row and "id" in row else ""


def _kind(path: Path, number: int, row: Mapping[str, Any]) -> str:
    if (kind := schema_of(row)) in ("mapping", "maths"):
        return kind
    keys = ", ".join(sorted(map(str, row))) or "no keys"
    raise DataError(
        f"{path}, line {number}: the keys are {keys}; expected a maths row {MATHS_SHAPE} "
        f"or a mapping row {MAPPING_SHAPE}"
    )


def read_items(path: Path) -> list[Item]:
    """Items written by `write_items`."""
    items: list[Item] = []
    seen: dict[str, int] = {}
    for number, row in read_objects(Path(path)):
        try:
            items.append(item := Item.from_dict(row))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}, line {number}: not an item ({type(error).__name__}: {error}); expected the keys id, task, "
                "level, split, prompt, answer, facts, thought, as `data make` writes them to items.jsonl"
            ) from error
        if item.id in seen:
            raise DataError(f"{path}, line {number}: the item {item.id} is in line {seen[item.id]} already")
        seen[item.id] = number
    if not items:
        raise DataError(f"{path} has no items; expected lines as `data make` writes them to items.jsonl")
    return items


def read_any(path: Path) -> list[MathsRow] | list[MappingRow] | list[Item]:
    """Rows in the published schema, or the items that `data make` writes: the keys of the first row say which."""
    return read_items(path) if first_schema(path) == "items" else read_published(path)


def first_schema(path: Path) -> str:
    """`schema_of` the first row of a file; "" of an empty one. DataError: it cannot be read."""
    return schema_of(next(read_objects(path), (0, {}))[1])


def published_rows(items: Iterable[Item]) -> list[dict[str, str]]:
    """Items as rows of the published schema; the ids are ours, so that a row can be traced to its item."""
    rows = []
    for item in items:
        if item.pair is None:
            rows.append({"Question": item.prompt, "Answer": item.answer, "id": item.id})
        else:
            rows.append({"ID": item.pair, f"Question_{item.id[-1]}": item.prompt, "Answer": item.answer})
    return rows


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line, atomically: either the whole file is there or what was there before."""
    path = Path(path)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "x", encoding="utf-8", newline="\n") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_items(path: Path, items: Iterable[Item]) -> None:
    """Items with all their facts, one a line."""
    write_rows(path, (item.to_dict() for item in items))


@contextlib.contextmanager
def filled_folder(out: Path) -> Iterator[Path]:
    """A folder to fill. It replaces `out` when it is complete; after an error `out` is as it was.

    Raises:
        DataError: `out` cannot be written.
    """
    folder = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    old = folder.with_name(f"{folder.name}.old")
    try:
        folder.mkdir(parents=True)
        yield folder
        try:
            if out.exists():
                os.replace(out, old)
            os.replace(folder, out)
        except BaseException:  # Ctrl-C, too
            if old.exists() and not out.exists():
                os.replace(old, out)
            raise
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        for leftover in (folder, old):
            shutil.rmtree(leftover, ignore_errors=True)
