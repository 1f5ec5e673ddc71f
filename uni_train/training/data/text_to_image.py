"""Text-to-image rows: an image, and its caption or several of which one is drawn each time the row is used.

`image` may also be called `images` (of one) or `file_name` (image folders of the datasets library). A caption is
`captions` (BAGEL's: an object as JSON text), `caption`, `text` or `prompt`: see `rows.caption_of`.
"""

from __future__ import annotations

import random

from uni_train.models.base import Example
from uni_train.training.data.rows import Row, caption_of

CAPTIONS = ("captions", "caption", "text", "prompt")
_IMAGES = ("image", "images", "file_name")


def parse(row: Row, random_: random.Random) -> Example:
    """A caption, then the image to be drawn. Raises BadRow."""
    prompt = caption_of(row, CAPTIONS, random_)
    key, image = row.first(*_IMAGES)
    return Example(prompt, target=row.image(image, key))
