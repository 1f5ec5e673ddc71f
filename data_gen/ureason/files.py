"""UReason's JSON lines, as we write them; `published` reads them.

A folder holds `<task>.jsonl` and `direct_<task>.jsonl`, with the same ids. Prompts of the first ask for reasoning and a
refined prompt; those of the second are the plain instruction. Rows are {"id", "prompt", "expect_en", "category"}; ours
have "subcategory" and "facts" beside them, which other people's readers do not see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uni_train.data_gen.task import Item


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


def write_folder(folder: Path, items: Iterable[Item]) -> list[Path]:
    """`<task>.jsonl` and `direct_<task>.jsonl` of every task that occurs among the items."""
    from uni_train.data_gen.jsonl import write_rows

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
    """An item as `published.read_folder` would read it back."""
    raw = published_row(item)
    return Row(
        item.id, raw["category"], item.prompt, item.facts["direct"], item.answer, raw["subcategory"], raw["facts"]
    )
