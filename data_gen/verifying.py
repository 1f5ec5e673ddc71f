"""`data verify`: images in a folder, named after their items, judged by the verifiers of the items' tasks.

An image of the item "maze4/test/0f3a" may be called 0f3a.png (as `data make` calls the target), maze4-test-0f3a.png
or maze4/test/0f3a.png; .png, .jpg, .jpeg and .webp are read. An item without an image is `missing`, an image that
cannot be decoded is `unreadable`: neither is left out, so that a rate has the right denominator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import DataError, nearest_or_all
from uni_train.core.reading_limits import open_image, rgb
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Check, Item, Verdict

if TYPE_CHECKING:
    import numpy as np

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


@dataclass(frozen=True, slots=True)
class Judged:
    """An item with its verdict; `image` and `verdict` are None if there is no image of it."""

    item: Item
    image: Path | None
    verdict: Verdict | None

    @property
    def status(self) -> str:
        return self.verdict.status if self.verdict else "missing"

    def to_dict(self) -> dict[str, Any]:
        """{"id", "image", "status", "score" where the task gives one, "checks"}."""
        verdict = self.verdict.to_dict() if self.verdict else {"status": "missing", "checks": []}
        return {"id": self.item.id, "image": str(self.image) if self.image else None, **verdict}


def judge_folder(items: Iterable[Item], folder: Path) -> Iterator[Judged]:
    """A `Judged` for every item, in their order. DataError if there is no such folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder: name the one that holds the images")
    for item in items:
        image = find_image(item.id, folder)
        yield Judged(item, image, judge_file(item, image) if image else None)


STATUSES = ("pass", "fail", "unreadable", "missing")


def counts(judged: Sequence[Judged]) -> list[tuple[object, ...]]:
    """How many images have each of STATUSES, and how many in each check: rows of a table."""
    rows: list[tuple[object, ...]] = [
        ("all checks", *(sum(answer.status == status for answer in judged) for status in STATUSES))
    ]
    checks = [check for answer in judged if answer.verdict for check in answer.verdict.checks]
    for name in dict.fromkeys(check.name for check in checks):
        statuses = [check.status for check in checks if check.name == name]
        rows.append((name, *(sum(one == status for one in statuses) for status in STATUSES[:3]), ""))
    return rows


def judge_file(item: Item, file: Path) -> Verdict:
    """The verdict on an image file; unreadable if it cannot be decoded. DataError if there is no such file."""
    file = Path(file)
    if not file.is_file():
        raise DataError(f"{file}: there is no such file")
    try:
        pixels = read_image(file)
    except DataError as error:
        return Verdict((Check("image", "unreadable", str(error)),))
    return judge_pixels(item, pixels)


def judge_pixels(item: Item, pixels: np.ndarray) -> Verdict:
    """The verdict on an image, uint8 [H, W, 3]. DataError for an item whose task or facts are none."""
    try:
        return task_of(item).verify(item, pixels)
    except DataError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{item.id}: these are no facts of {item.task} ({error!r}); make the items again") from error


def find_image(item_id: str, folder: Path) -> Path | None:
    """The image of an item in `folder`, or None."""
    parts = item_id.split("/")
    for name in ("-".join(parts[2:]), "-".join(parts), "/".join(parts)):
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError, ValueError):  # a name that no file can have
                if name and (folder / f"{name}{suffix}").is_file():
                    return folder / f"{name}{suffix}"
    return None


def find_item(items: Iterable[Item], item_id: str) -> Item:
    """The item called `item_id`, or whose id ends in it. DataError if none or several are."""
    listed = list(items)
    matches = [item for item in listed if item.id == item_id or item.id.endswith(f"/{item_id}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise DataError(f'{len(matches)} items are called "{item_id}": give the whole id, such as {matches[0].id}')
    raise DataError(f'no item is called "{item_id}": {nearest_or_all(item_id, [item.id for item in listed][:1000])}')


def read_image(file: Path) -> np.ndarray:
    """uint8 [H, W, 3]; what is transparent is white. DataError if it cannot be decoded or is far too large."""
    try:
        with open_image(file, file) as opened:
            return rgb(opened)
    except OSError as error:
        raise DataError(f"{file} cannot be read as an image: {error.strerror or error}") from error
