"""Reading UReason's published JSON lines, whose layout `files` describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from uni_train.core.errors import DataError
from uni_train.data_gen.published_rows import Place, PublishedRow, Text, read_rows
from uni_train.data_gen.ureason.files import Row
from uni_train.data_gen.ureason.outcomes import outcome_from
from uni_train.data_gen.ureason.taxonomy import SUBCATEGORIES, TASKS

SHAPE = '{"id": 301, "prompt": "Task: ...", "expect_en": "Left is ...", "category": "spatial"}'


class PublishedPuzzle(PublishedRow):
    """A row as it is published, asked either way."""

    prompt: Text
    expect_en: Text
    category: Text
    subcategory: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)


Puzzles = Mapping[str, tuple[Place, PublishedPuzzle]]
"""Id -> row."""


def read_folder(folder: Path, tasks: Sequence[str] = TASKS) -> list[Row]:
    """All rows of the tasks' files, in the order of `tasks` and of the files.

    Raises:
        DataError: names the file and line. There is no such folder or file; a key is missing; a text is empty; an id
            occurs twice; a row has no direct row, or the other way round.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder: name the one with code.jsonl, direct_code.jsonl and so on. The published ones: "
            "git clone https://github.com/UReason/UReason, then data.ureason=UReason/data"
        )
    names = [f"{prefix}{task}.jsonl" for task in tasks for prefix in ("", "direct_")]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{folder} has no {', '.join(missing)}: UReason is {', '.join(f'{task}.jsonl' for task in tasks)} "
            "and the same with direct_ before it; leave out tasks that you do not have"
        )
    guided, direct = (_puzzles([folder / f"{prefix}{task}.jsonl" for task in tasks]) for prefix in ("", "direct_"))
    _expect_partners(guided, direct, "direct_{}")
    _expect_partners(direct, guided, "{}")
    return [_row(place, row, *direct[row.id]) for place, row in guided.values()]


def _puzzles(paths: Sequence[Path]) -> Puzzles:
    puzzles = {row.id: (place, row) for place, row in read_rows(paths, PublishedPuzzle, SHAPE)}
    for place, row in puzzles.values():
        if row.category.casefold() != (task := place.path.stem.removeprefix("direct_")):
            raise DataError(f'{place}: "category" is "{row.category}", but the file is of {task}')
    return puzzles


def _expect_partners(puzzles: Puzzles, partners: Puzzles, name: str) -> None:
    lacking = [id_ for id_ in puzzles if id_ not in partners]
    if lacking:
        path = puzzles[lacking[0]][0].path
        partner = path.with_name(name.format(path.name.removeprefix("direct_")))
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise DataError(f"{partner} has no row for the ids {', '.join(lacking[:5])}{more} of {path.name}")


def _row(place: Place, row: PublishedPuzzle, direct_place: Place, direct: PublishedPuzzle) -> Row:
    task = row.category.casefold()
    if row.expect_en != direct.expect_en:
        raise DataError(
            f'{place}: "expect_en" of id {row.id} is another one in {direct_place.path.name}, {direct_place.line}: '
            "both must be judged by the same criterion"
        )
    if row.subcategory and row.subcategory not in SUBCATEGORIES[task]:
        known = ", ".join(SUBCATEGORIES[task])
        raise DataError(f'{place}: {task} has no subcategory "{row.subcategory}"; known: {known}')
    if "outcome" in row.facts:
        try:
            outcome_from(row.facts["outcome"])
        except DataError as error:
            raise DataError(f"{place}: {error}") from error
    return Row(row.id, task, row.prompt, direct.prompt, row.expect_en, row.subcategory, row.facts)
