"""Rows of our own, as `uni_train data make` writes them (items.jsonl): a prompt, and what is learned from it.

Keys: `prompt`; `thought`, `answer`, `image` (the image to be drawn) as far as they are learned; `images` (or one
`input_image`) for what is shown. Images are paths from the file's folder, or encoded bytes in Parquet. A thought
without an image is think text; a thought with one teaches to think, then to draw.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from uni_train.core.errors import DataError
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item
from uni_train.models.base import Example
from uni_train.training.data.rows import BadRow, Row, RowFile, Rows


def parser(
    learn: Sequence[str], show_thought: bool = False, symmetries: bool = False
) -> Callable[[Row, random.Random], Example]:
    """How to read a row of which `learn` ("thought", "answer", "image") is learned; the thought may also be shown.

    symmetries: in place of the row a view of its item by `Task.symmetric`, drawn anew, which the generator chooses.
    """

    def parse(row: Row, random_: random.Random) -> Example:
        """One exchange. Raises BadRow."""
        if symmetries:
            row = _symmetric(row, random_)
        row.find("image")  # is known, also where it is not learned
        return Example(
            row.text("prompt"),
            images=row.images("images", "input_image"),
            thought=row.text("thought") if show_thought or "thought" in learn else None,
            learn_thought=not show_thought,
            answer=row.text("answer") if "answer" in learn else None,
            target=row.image(row.get("image"), "image") if "image" in learn else None,
        )

    return parse


def _symmetric(row: Row, random_: random.Random) -> Row:
    """Images as pixels. Raises BadRow: no item of ours, or one of a task without symmetries."""
    try:
        item = Item.from_dict(row.values)
        task = task_of(item)
        view = task.symmetric(item, random_)
        images = {"input_image": task.input_image(view), "image": task.render(view, 0)}
    except (KeyError, TypeError, ValueError) as error:
        why = error if isinstance(error, DataError) else f"the row is no item of ours: {error}"
        raise BadRow(f"augment=symmetries: {why}", "Set augment=null, or give mazes of `data make`.") from None
    return Row({**view.to_dict(), **images}, row.folder, row.read)


def images_of(
    rows: RowFile,
    noise_draws: int,
    thoughts: bool = False,
    bad: Literal["error", "skip"] = "error",
    tokens: Callable[[Example], int] | None = None,
    symmetries: bool = False,
) -> Rows:
    """Rows as prompt -> image, or with their thoughts between. Images stay on disk until a batch needs them.

    tokens: the model's `example_tokens`: a row whose tokens it cannot count is bad. symmetries: as `parser`.
    """
    parse = parser(("thought", "image") if thoughts else ("image",), symmetries=symmetries)

    def several_draws(row: Row, random_: random.Random) -> Example:
        return replace(parse(row, random_), noise_draws=noise_draws)

    return Rows(rows, several_draws, bad, tokens or (lambda example: 0), sys.maxsize)
