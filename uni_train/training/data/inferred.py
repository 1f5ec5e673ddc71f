"""Rows whose keys say what they are: conversations, edits, or captions with images."""

from __future__ import annotations

import random

from uni_train.models.base import Example
from uni_train.training.data import conversations, edit, text_to_image
from uni_train.training.data.rows import Row, missing


def parse(row: Row, random_: random.Random) -> Example:
    """The example of a row in any of the three forms. Raises BadRow."""
    keys = {key for key, value in row.values.items() if not missing(value)}
    if keys & conversations.KEYS:
        return conversations.parse(row, random_)
    if keys & edit.KEYS or {"image", "images"} <= keys:
        return edit.parse(row, random_)
    return text_to_image.parse(row, random_)
