"""A page of all tasks, worked out from their classes and from items that they draw."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from uni_train.data_gen.export import filled_levels
from uni_train.data_gen.objects import EVERYDAY, NANO
from uni_train.data_gen.registry import TASKS
from uni_train.data_gen.task import Item, Task

_HEAD = """# All tasks

`uni_train data tasks` writes this page; a test compares the two.
`data make --task NAME` draws items, `data show --task NAME --out page.html` shows them ([data](../data.md)).

"""
_COLUMNS = (
    "name", "title", "asks for", "levels", "input image", "splits", "sets", "what is verified", "pixels (nano)",
    "pixels (otherwise)",
)  # fmt: skip


def overview(names: Sequence[str]) -> str:
    """The tasks of these names as a Markdown table."""
    rows = [_COLUMNS, ["---"] * len(_COLUMNS), *(_row(TASKS.get(name)) for name in names)]
    return _HEAD + "".join(f"|{'|'.join(row)}|\n" for row in rows)


def summary(task: type[Task]) -> str:
    """What a task asks for: the first paragraph of its docstring."""
    return " ".join(inspect.cleandoc(task.__doc__ or "").partition("\n\n")[0].split())


def _row(task: type[Task]) -> list[str]:
    nano, other = (_drawn(task.in_world(world)) for world in (NANO, EVERYDAY))
    checks = dict.fromkeys(
        check.name for task, item in nano for check in task.verify(item, task.render(item, 0)).checks
    )
    return [
        f"`{task.name}`",
        task.title,
        summary(task),
        _ends([str(level) for level in sorted(task.levels)]),
        "yes" if task.edits else "no",
        ", ".join(task.splits),
        _ends([task.sets[level] for level in sorted(task.sets)]),
        ", ".join(checks),
        _pixels(nano),
        _pixels(other),
    ]


def _drawn(task: Task) -> list[tuple[Task, Item]]:
    """Items of the lowest and the highest level, as far as programs draw their images."""
    levels = filled_levels(task, "test")
    items = [task.sample(0, level, "test")[0] for level in dict.fromkeys([levels[0], levels[-1]])]
    return [(task, item) for item in items if task.has_image(item)]


def _pixels(drawn: Sequence[tuple[Task, Item]]) -> str:
    """Width x height of the smallest and of the largest image."""
    shapes = sorted({task.render(item, 0).shape[:2] for task, item in drawn})
    return _ends([f"{width} x {height}" for height, width in shapes]) or "no image"


def _ends(names: Sequence[str]) -> str:
    """The first and the last, if there are two."""
    return " to ".join(dict.fromkeys([*names[:1], *names[-1:]]))
