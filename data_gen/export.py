"""`data make`: a folder of fresh items - the published schema, our items with all facts, and the images.

    OUT/math_1.jsonl or mapping1.jsonl   rows as published, named as published, of tasks that have a published schema
    OUT/<task>.jsonl, direct_<task>.jsonl   the same of UReason's tasks
    OUT/items.jsonl                      every fact, thought and id; "image" and "image_seed" where there are images,
                                         "input_image" for mazes
    OUT/images/<id>.png                  the target images (nano world, mazes); <id> is what follows the split in it
    OUT/inputs/<id>.png                  the input images (mazes)

The folder is filled under a temporary name and renamed when complete, so it is never there by half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.jsonl import filled_folder, write_rows
from uni_train.data_gen.objects import get_world
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Item, Task

_PLACES = {"image": "images", "input_image": "inputs"}


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What was written.

    questions: the file in the published schema (the first of UReason's), or items.jsonl where none is published
    (mazes). items counts questions (two for each pair); images is 0 for a world without sprites.
    """

    path: Path
    questions: Path
    items: int
    pairs: int
    images: int
    bytes: int


def make(
    task: str | Task,
    level: int | Sequence[int],
    n: int,
    split: str,
    seed: int,
    world: str,
    out: Path,
    force: bool,
) -> ExportSummary:
    """Writes `n` distinct draws (2n questions for pairs) of each level to the folder `out`.

    task: a name, looked up in `world`, or a task object (such as a maze style), which ignores `world`. Several levels
    are for mazes and UReason: a published file of maths or mapping has one.

    DataError if `out` exists and is not empty, unless `force`; and even then if it holds anything that `make` did not
    write, since force replaces the folder.
    """
    out = Path(out)
    if n < 1:
        raise DataError(f"n is {n}: ask for at least one item")
    _check_target(out, force)
    drawer = get_task(task, get_world(world)) if isinstance(task, str) else task
    levels = [level] if isinstance(level, int) else list(level)
    items = [item for number in levels for item in drawer.generate(n, number, split, seed)]
    if len(levels) > 1 and not drawer.level_range:
        raise DataError(f"a published {drawer.name} file holds one level: make a folder for each")
    with filled_folder(out) as folder:
        published = drawer.publish(folder, items)
        rows = [item.to_dict() for item in items]
        images = sum(
            _draw(folder, drawer, item, row, seed)
            for item, row in zip(items, rows, strict=True)
            if drawer.has_image(item)
        )
        write_rows(folder / "items.jsonl", rows)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    pairs = sum(item.pair is not None for item in items) // 2
    return ExportSummary(out, out / (published.name if published else "items.jsonl"), len(items), pairs, images, size)


def picture_name(item_id: str) -> str:
    """The name, without suffix, of the images of an item: what follows the split in its id, "0f3a" or "0f3a-A"."""
    return "-".join(item_id.split("/")[2:])


def _draw(folder: Path, drawer: Task, item: Item, row: dict[str, Any], seed: int) -> int:
    """Writes the images of an item and names them in its row; how many they are."""
    from PIL import Image

    row["image_seed"] = derive_seed("image", seed, item.id)
    pictures = {"image": drawer.render(item, row["image_seed"])}
    input_image = drawer.input_image(item)
    if input_image is not None:
        pictures["input_image"] = input_image
    for key, pixels in pictures.items():
        row[key] = f"{_PLACES[key]}/{picture_name(item.id)}.png"
        (folder / row[key]).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / row[key])
    return len(pictures)


def _check_target(out: Path, force: bool) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"{out} is a file: choose a folder for the data")
    present = {entry.name for entry in out.iterdir()}
    if present and not force:
        raise DataError(f"{out} is not empty: choose another folder, or use force to replace the data in it")
    ours = {"items.jsonl", *_PLACES.values(), *(name for task in TASKS.names() for name in TASKS.get(task).published)}
    foreign = sorted(present - ours)
    if foreign:
        raise DataError(f"{out} holds {foreign[0]}, which is not generated data: choose another folder")
