"""`data make`: a folder of fresh items - the published schema, our items with all facts, and for nano the pictures.

    OUT/math_1.jsonl or mapping1.jsonl   rows as published, named as published
    OUT/items.jsonl                      every fact, thought and id; "image" and "image_seed" for nano
    OUT/images/<id>.png                  the target pictures (nano world)

The folder is filled under a temporary name and renamed when complete, so it is never there by half.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from data_gen.errors import DataError
from data_gen.jsonl import published_rows, write_rows
from data_gen.objects import get_world
from data_gen.seeds import derive_seed
from data_gen.task import get_task

_OURS = {"items.jsonl", "images", *(f"math_{n}.jsonl" for n in (1, 2, 3)), *(f"mapping{n}.jsonl" for n in (1, 2, 3))}


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What was written. items counts questions (two for each pair); images is 0 for a world without sprites."""

    path: Path
    questions: Path
    items: int
    pairs: int
    images: int
    bytes: int


def make(task: str, level: int, n: int, split: str, seed: int, world: str, out: Path, force: bool) -> ExportSummary:
    """Writes `n` distinct draws (2n questions for pairs) of `task` to the folder `out`.

    DataError if `out` exists and is not empty, unless `force`; and even then if it holds anything that `make` did not
    write, since force replaces the folder.
    """
    out = Path(out)
    if n < 1:
        raise DataError(f"n is {n}: ask for at least one item")
    _check_target(out, force)
    drawer = get_task(task, get_world(world))
    items = drawer.generate(n, level, split, seed)
    name = f"math_{level}.jsonl" if task == "maths" else f"mapping{level}.jsonl"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror or error}") from error
    try:
        os.chmod(folder, 0o755)
        write_rows(folder / name, published_rows(items))
        rows = [item.to_dict() for item in items]
        images = 0
        if world == "nano":
            from PIL import Image

            (folder / "images").mkdir()
            for item, row in zip(items, rows, strict=True):
                row["image_seed"] = derive_seed("image", seed, item.id)
                row["image"] = f"images/{'-'.join(item.id.split('/')[2:])}.png"
                Image.fromarray(drawer.render(item, row["image_seed"])).save(folder / row["image"])
                images += 1
        write_rows(folder / "items.jsonl", rows)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        _replace(folder, out)
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    pairs = sum(item.pair is not None for item in items) // 2
    return ExportSummary(out, out / name, len(items), pairs, images, size)


def _check_target(out: Path, force: bool) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"{out} is a file: choose a folder for the data")
    present = {entry.name for entry in out.iterdir()}
    if present and not force:
        raise DataError(f"{out} is not empty: choose another folder, or use force to replace the data in it")
    foreign = sorted(present - _OURS)
    if foreign:
        raise DataError(f"{out} holds {foreign[0]}, which is not generated data: choose another folder")


def _replace(folder: Path, out: Path) -> None:
    """Renames `folder` to `out`; what was at `out` is moved aside first and removed last."""
    if not out.exists():
        os.replace(folder, out)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
    os.replace(out, aside / "old")
    try:
        os.replace(folder, out)
    except OSError:
        os.replace(aside / "old", out)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
