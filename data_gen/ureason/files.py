"""UReason's JSON lines, as published and as we write them.

A folder holds `<task>.jsonl` and `direct_<task>.jsonl`, with the same ids. Prompts of the first ask for reasoning and a
refined prompt; those of the second are the plain instruction. Rows are {"id", "prompt", "expect_en", "category"}; ours
have "subcategory" and "facts" beside them, which other people's readers do not see.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.jsonl import read_objects, write_rows
from uni_train.data_gen.task import Item
from uni_train.data_gen.ureason.outcomes import outcome_from
from uni_train.data_gen.ureason.taxonomy import SUBCATEGORIES, TASKS

KEYS = ("id", "prompt", "expect_en", "category")
_ALIASES = {
    "id": ("index", "uid", "sample_id"),
    "prompt": ("question", "instruction", "text"),
    "expect_en": ("expect", "expected", "answer", "criterion", "criteria"),
    "category": ("task", "type", "domain"),
}
SHAPE = '{"id": 301, "prompt": "Task: ...", "expect_en": "Left is ...", "category": "spatial"}'


@dataclass(frozen=True, slots=True)
class Row:
    """One instance: `prompt` asks for reasoning, `direct` does not; `criterion` is what the image must show.

    subcategory: "" where it is not given (the published files). facts: JSON-able, {} in the published files.
    """

    id: str
    task: str
    prompt: str
    direct: str
    criterion: str
    subcategory: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def read_folder(folder: Path, tasks: Sequence[str] = TASKS, direct: bool = True) -> list[Row]:
    """All rows of the tasks' files, in the order of `tasks` and of the files.

    Args:
        direct: whether direct_<task>.jsonl must be there; where it is not asked for, `Row.direct` is "".

    Raises:
        DataError: names the file and line. There is no such folder or file, or a key is missing (it names a similar
            key). A text is empty, an id occurs twice, or a row has no direct row or the other way round.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder: name the one with code.jsonl, direct_code.jsonl and so on. The published ones: "
            "git clone https://github.com/UReason/UReason, then data.ureason=UReason/data"
        )
    names = [f"{prefix}{task}.jsonl" for task in tasks for prefix in (("", "direct_") if direct else ("",))]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{folder} has no {', '.join(missing)}: UReason is {', '.join(f'{task}.jsonl' for task in tasks)} "
            "and the same with direct_ before it; leave out tasks that you do not have"
        )
    rows: list[Row] = []
    place_of: dict[str, str] = {}
    for task in tasks:
        path = folder / f"{task}.jsonl"
        rows_of = _read(path, task, place_of)
        direct_rows = _read(folder / f"direct_{task}.jsonl", task, {}) if direct else None
        if direct_rows is not None:
            _check_partners(path, rows_of, folder / f"direct_{task}.jsonl", direct_rows)
        for id_, (number, row) in rows_of.items():
            subcategory = str(row.get("subcategory", ""))
            if subcategory and subcategory not in SUBCATEGORIES[task]:
                known = ", ".join(SUBCATEGORIES[task])
                raise DataError(f'{path}, line {number}: {task} has no subcategory "{subcategory}"; known: {known}')
            facts = row.get("facts", {})
            if not isinstance(facts, dict):
                raise DataError(f'{path}, line {number}: "facts" is a {type(facts).__name__}; expected an object')
            if "outcome" in facts:
                try:
                    outcome_from(facts["outcome"])
                except DataError as error:
                    raise DataError(f"{path}, line {number}: {error}") from error
            direct_prompt = direct_rows[id_][1]["prompt"] if direct_rows is not None else ""
            rows.append(Row(id_, task, row["prompt"], direct_prompt, row["expect_en"], subcategory, facts))
    return rows


def read_file(path: Path) -> dict[str, tuple[int, dict[str, Any]]]:
    """id -> (line, checked row) of one file, asked either way. DataError as `read_folder`."""
    _, first = next(read_objects(path), (0, {}))
    return _read(path, str(first.get("category", "")).casefold(), {})


def write_folder(folder: Path, items: Iterable[Item]) -> list[Path]:
    """`<task>.jsonl` and `direct_<task>.jsonl` of every task that occurs among the items."""
    by_task: dict[str, list[Item]] = {}
    for item in items:
        by_task.setdefault(str(item.facts["task"]), []).append(item)
    paths = []
    for task, group in by_task.items():
        for prefix in ("", "direct_"):
            paths.append(folder / f"{prefix}{task}.jsonl")
            write_rows(paths[-1], (published_row(item, direct=bool(prefix)) for item in group))
    return paths


def published_row(item: Item, direct: bool = False) -> dict[str, Any]:
    """An item in the published schema, with our subcategory and facts."""
    return {
        "id": item.id,
        "prompt": item.facts["direct"] if direct else item.prompt,
        "expect_en": item.answer,
        "category": item.facts["task"],
        "subcategory": item.facts["subcategory"],
        "facts": {key: item.facts[key] for key in ("world", "level", "outcome") if key in item.facts},
    }


def row_of(item: Item) -> Row:
    """An item as `read_folder` would read it back."""
    raw = published_row(item)
    return Row(
        item.id, raw["category"], item.prompt, item.facts["direct"], item.answer, raw["subcategory"], raw["facts"]
    )


def _read(path: Path, task: str, place_of: dict[str, str]) -> dict[str, tuple[int, dict[str, Any]]]:
    """id -> (line, checked row). `place_of` holds the ids of the files read before."""
    rows: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, row in read_objects(path):
        lacking = [key for key in KEYS if key not in row]
        if lacking:
            raise DataError(f'{path}, line {number}: no "{lacking[0]}"{_renamed(lacking[0], row)}; expected {SHAPE}')
        if isinstance(row["id"], bool) or not isinstance(row["id"], int | str):
            raise DataError(f'{path}, line {number}: "id" is {json.dumps(row["id"])[:40]}; expected a number or a text')
        for key in KEYS[1:]:
            if not isinstance(row[key], str) or not row[key].strip():
                raise DataError(f'{path}, line {number}: "{key}" is {json.dumps(row[key])[:40]}; expected some text')
        if row["category"].casefold() != task:
            raise DataError(f'{path}, line {number}: "category" is "{row["category"]}", but the file is of {task}')
        id_ = str(row["id"])
        if id_ in place_of:
            raise DataError(f"{path}, line {number}: the id {id_} was used in {place_of[id_]}: ids must be unique")
        place_of[id_] = f"{path.name}, line {number}"
        rows[id_] = (number, row)
    if not rows:
        raise DataError(f"{path} has no rows; expected {SHAPE}")
    return rows


def _renamed(key: str, row: Mapping[str, Any]) -> str:
    """A guess which key of the row is meant for the missing one."""
    spare = [name for name in row if name not in KEYS]
    close = difflib.get_close_matches(key, spare, n=1, cutoff=0.5)
    alias = close or [name for name in spare if name.casefold() in _ALIASES[key]]
    return f' (is it called "{alias[0]}" here?)' if alias else f"; its keys are {', '.join(row)}"


def _check_partners(
    path: Path,
    rows: Mapping[str, tuple[int, Mapping[str, Any]]],
    direct_path: Path,
    direct_rows: Mapping[str, tuple[int, Mapping[str, Any]]],
) -> None:
    for file, other, lacking in ((path, direct_path, [i for i in rows if i not in direct_rows]),
                             (direct_path, path, [i for i in direct_rows if i not in rows])):  # fmt: skip
        if lacking:
            more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
            raise DataError(f"{other} has no row for the ids {', '.join(lacking[:5])}{more} of {file.name}")
    for id_, (number, row) in rows.items():
        if row["expect_en"] != direct_rows[id_][1]["expect_en"]:
            raise DataError(
                f'{path}, line {number}: "expect_en" of id {id_} is another one in {direct_path.name}, line '
                f"{direct_rows[id_][0]}: both must be judged by the same criterion"
            )
