"""Pages of items: a gallery of what `data make` has written, and a task with steps of solutions and refused images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from uni_train.data_gen.attacks import attack_items
from uni_train.data_gen.formats import png
from uni_train.data_gen.jsonl import read_objects
from uni_train.data_gen.overview import summary
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item, Task
from uni_train.eval.report.gallery import data_url
from uni_train.eval.report.page import Page, Section

if TYPE_CHECKING:
    import numpy as np

WRONG = ("blank", "input copied", "another item's answer", "input erased in part", "half of the answer")
"""Attacks that a page shows with the verifier's reasons."""
_CAPTIONS = {"input_image": "input", "image": "target"}


def gallery_page(folder: Path, tasks: Sequence[Task]) -> Page:
    """The items of `folder`/TASK/items.jsonl, a section a task; the page belongs into `folder`."""
    sections = []
    for task in tasks:
        cards = [_card(row, [_files(task.name, row)]) for _, row in read_objects(folder / task.name / "items.jsonl")]
        sections.append(_section(task, task.title, cards, wide=False))
    return Page(title="Tasks", sections=sections, beside=True)


def items_page(items: Sequence[Item]) -> Page:
    """Items, a section a level: input, steps of the solution, target, and images that the verifier should refuse."""
    sections = []
    for (_, level), group in groupby(items, key=lambda item: (item.task, item.level)):
        members = list(group)
        task = task_of(members[0])
        cards = [_card(item.to_dict(), _rows(item, members) if task.has_image(item) else []) for item in members]
        sections.append(_section(task, f"{task.title}, level {level}", cards, wide=True))
    title = ", ".join(dict.fromkeys(task_of(item).title for item in items))
    return Page(title=title, sections=sections)


def _section(task: Task, title: str, cards: Sequence[Mapping[str, Any]], wide: bool) -> Section:
    return Section(title, summary(type(task)), body="items.html", shown={"cards": cards, "wide": wide})


def _card(row: Mapping[str, Any], rows: Sequence[Sequence[Mapping[str, str]]]) -> dict[str, Any]:
    return {name: row[name] for name in ("prompt", "thought", "answer")} | {"rows": rows}


def _files(name: str, row: Mapping[str, Any]) -> list[dict[str, str]]:
    return [_image(quote(f"{name}/{row[key]}"), caption) for key, caption in _CAPTIONS.items() if key in row]


def _rows(item: Item, others: Sequence[Item]) -> list[list[dict[str, str]]]:
    """The input and the steps to the target; the refused images with their verdicts."""
    import numpy as np

    task = task_of(item)
    input_image, frames = task.input_image(item), task.frames(item)
    steps = [] if input_image is None else [_drawn(input_image, "input")]
    middle = frames[:-1] if input_image is None or not np.array_equal(frames[0], input_image) else frames[1:-1]
    steps += [_drawn(frame, f"step {number}") for number, frame in enumerate(middle, start=1)]
    steps.append(_drawn(frames[-1], "target"))
    verdicts = []
    attacks = attack_items(task, [item, *(other for other in others if other is not item)], seed=0, only=WRONG)
    for case in takewhile(lambda case: case.item is item, attacks):
        verdict = task.verify(item, case.image)
        verdicts.append(_drawn(case.image, case.attack.name) | {"status": verdict.status, "reason": verdict.reason})
    return [steps, verdicts]


def _drawn(pixels: np.ndarray, caption: str) -> dict[str, str]:
    return _image(data_url(png(pixels)), caption)


def _image(url: str, caption: str) -> dict[str, str]:
    return {"url": url, "caption": caption, "status": "", "reason": ""}
