"""`data make`: a folder of fresh items - the published schema, our items with all facts, and the images.

    OUT/math_1.jsonl or mapping1.jsonl   rows as published, named as published, of tasks that have a published schema
    OUT/<task>.jsonl, direct_<task>.jsonl   the same of UReason's tasks
    OUT/items.jsonl                      every fact, thought and id; "image" and "image_seed" where there are images,
                                         "input_image" for tasks that edit
    OUT/images/<id>.png                  the target images; <id> is what follows the split in it
    OUT/inputs/<id>.png                  the input images

Other formats are in data_gen/formats.py. The folder is filled under a temporary name and renamed when complete, so it
is never there by half.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from uni_train.core.errors import DataError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.formats import WRITERS, Sample, is_written, png
from uni_train.data_gen.jsonl import filled_folder
from uni_train.data_gen.objects import NANO, get_world
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.data_gen.task import Item, Task


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What was written.

    published: the file in the published schema (the first of UReason's), None where there is none. items counts
    questions (two for each pair), distinct their canonical forms; images is 0 for a world without sprites.
    kinds: (verdict, kind of image) -> rows, of the format judge.
    """

    path: Path
    published: Path | None
    items: int
    pairs: int
    distinct: int
    images: int
    bytes: int
    kinds: Mapping[tuple[str, str], int]


class Form(NamedTuple):
    """Rows of another kind. samples: of items, by a seed. write: them, of a split, to a folder."""

    samples: Callable[[Task, Sequence[Item], int], Iterator[Sample]]
    write: Callable[[Path, str, Iterable[Sample]], None]


def make(
    task: str | Task,
    level: int | Sequence[int],
    n: int,
    split: str,
    seed: int,
    world: str,
    out: Path,
    force: bool,
    format: str | Form = "folder",
) -> ExportSummary:
    """Writes `n` distinct draws (2n questions for pairs) of each level to the folder `out`.

    task: a name, looked up in `world`, or a task object (such as a maze style), which ignores `world`. Several levels
    are for mazes and UReason: a published file of maths or mapping has one. format: one of `formats.WRITERS`, or
    a form of rows of its own; files in the published schema are part of "folder".

    DataError if `out` exists and is not empty, unless `force`; and even then if it holds anything that `make` did not
    write, since force replaces the folder.
    """
    out = Path(out)
    if n < 1:
        raise DataError(f"n is {n}: ask for at least one item")
    check_target(out, force, (name for task in TASKS.names() for name in TASKS.get(task).published))
    drawer = get_task(task, get_world(world)) if isinstance(task, str) else task
    levels = [level] if isinstance(level, int) else list(level)
    items = [item for number in levels for item in drawer.generate(n, number, split, seed)]
    if len(levels) > 1 and not drawer.level_range:
        raise DataError(f"a published {drawer.name} file holds one level: make a folder for each")
    images, kinds = 0, Counter[tuple[str, str]]()
    samples_of, write = format if isinstance(format, Form) else (_samples, WRITERS[format])

    def samples() -> Iterator[Sample]:
        nonlocal images
        for sample in samples_of(drawer, items, seed):
            images += len(sample.images)
            if "kind" in sample.row:
                kinds[sample.row["verdict"], sample.row["kind"]] += 1
            yield sample

    with filled_folder(out) as folder:
        published = drawer.publish(folder, items) if format == "folder" else None
        write(folder, split, samples())
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    pairs = sum(item.pair is not None for item in items) // 2
    distinct = len({str(item.facts.get("canonical", item.id)) for item in items})
    return ExportSummary(
        out, out / published.name if published else None, len(items), pairs, distinct, images, size, kinds
    )


def _samples(drawer: Task, items: Sequence[Item], seed: int) -> Iterator[Sample]:
    return (_sample(drawer, item, seed) for item in items)


def _sample(drawer: Task, item: Item, seed: int) -> Sample:
    """An item with its images, drawn now."""
    row = item.to_dict()
    if not drawer.has_image(item):
        return Sample(row, {})
    row["image_seed"] = derive_seed("image", seed, item.id)
    images = {"image": drawer.render(item, row["image_seed"]), "input_image": drawer.input_image(item)}
    return Sample(row, {key: png(pixels) for key, pixels in images.items() if pixels is not None})


def check_target(out: Path, force: bool, ours: Iterable[str] = ()) -> None:
    """DataError unless `out` may be written.

    It is missing or empty, or replaced by `force` and holds no more than formats write and names in `ours`.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"{out} is a file: choose a folder for the data")
    present = {entry.name for entry in out.iterdir()}
    if present and not force:
        raise DataError(f"{out} is not empty: choose another folder, or use force to replace the data in it")
    foreign = sorted(name for name in present - set(ours) if not is_written(name))
    if foreign:
        raise DataError(f"{out} holds {foreign[0]}, which is not generated data: choose another folder")


# -------------------------------------------------------------------------------------------- tasks as they are drawn

_LOOKS = {"world": "world", "style": "style", "pixels": "side", "balanced": "balanced"}
"""Option of `data make` -> the field of a task that it sets."""


def configured_task(
    name: str,
    levels: Sequence[int] = (),
    split: str = "train",
    *,
    world: str | None = None,
    style: str | None = None,
    pixels: int | None = None,
    balanced: bool | None = None,
) -> tuple[Task, tuple[int, ...]]:
    """A task as `data make` draws it, and its levels.

    Args:
        levels: empty: the task's default ones.
        style: of mazes; None: varied. pixels: a side of their images. balanced: maths on which no trivial strategy
            exceeds chance.

    Raises:
        DataError: no such task, level, split, world or style; a value that says nothing about the task; several levels
            of a task whose folders hold one.
    """
    task = get_task(name, world or NANO)
    for option, value in (("world", world), ("style", style), ("pixels", pixels), ("balanced", balanced)):
        if value is not None and not hasattr(task, _LOOKS[option]):
            raise DataError(f"{option} {value} says nothing about {name}: leave {option} out")
    if hasattr(task, "style"):
        task = replace(cast(Any, task), style=style or cast(Any, type(task)).style, side=pixels)
    if balanced is not None:
        task = replace(cast(Any, task), balanced=balanced)
    chosen = tuple(levels) or task.default_levels or task.levels[:1]
    for level in chosen:
        task.check(level, split)
    if len(chosen) > 1 and not task.level_range:
        raise DataError(f"a range of levels is not for {name}: run the command once a level")
    return task, chosen


def every_task(levels: Sequence[int], split: str, **looks: Any) -> dict[str, tuple[Task, tuple[int, ...]]]:
    """All tasks by name as `data make` draws them, with their levels.

    Args:
        levels: the level of tasks that have items of it; others take their lowest one. Empty: the default levels.
        looks: world, style, pixels and balanced as in `configured_task`, for tasks about which they say something.

    Raises:
        DataError: several levels; no such split, world or style.
    """
    if len(levels) > 1:
        raise DataError("a range of levels is not for all tasks: run the command once a level")
    tasks = {}
    for name in TASKS.names():
        task = get_task(name)
        known = {option: value for option, value in looks.items() if hasattr(task, _LOOKS[option])}
        filled = filled_levels(task, split) if levels else []
        tasks[name] = configured_task(name, levels if {*levels} <= {*filled} else filled[:1], split, **known)
    return tasks


def filled_levels(task: Task, split: str) -> list[int]:
    """The levels of a task that have items of a split, from the lowest."""
    levels = []
    for level in sorted(task.levels):
        with contextlib.suppress(DataError):
            task.sample(0, level, split)
            levels.append(level)
    return levels
