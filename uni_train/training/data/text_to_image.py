"""Text-to-image rows as BAGEL is trained on: Parquet with `image` (an encoded image) and `captions`.

`captions` is a JSON object as text, {"some name": "a caption", ...}; one of them is drawn each time the row is used.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from uni_train.data_gen.reading_limits import parse_json
from uni_train.models.base import Example
from uni_train.training.data.rows import BadRow, Row, image_of, text_of


def parse(row: Row, random_: random.Random) -> Example:
    """A caption, then the image to be drawn. Raises BadRow."""
    captions = row.get("captions")
    if isinstance(captions, str):
        try:
            captions = parse_json(captions, "captions")
        except ValueError:
            raise BadRow("captions is not JSON") from None
    if not isinstance(captions, Mapping):
        raise BadRow("captions is no JSON object of captions")
    texts = [text_of(text, f"caption {name}") for name, text in captions.items() if text is not None]
    if not texts:
        raise BadRow("has no captions")
    return Example(random_.choice(texts), target=image_of(row.get("image"), row.folder, "image"))
