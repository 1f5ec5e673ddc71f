"""Conversations in the form of LLaVA: JSONL with `conversations`, and `image` or `images` (one or a list) if any.

    {"image": "a.jpg", "conversations": [{"from": "human", "value": "<image>\\nWhat is this?"},
                                         {"from": "gpt", "value": "A cat."}]}

Every `<image>` stands for the next image. What "gpt" says is learned, what "human" and "system" say is shown.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from uni_train.models.base import Example, Turn
from uni_train.training.data.rows import BadRow, Row, text_of

_MARK = "<image>"


def parse(row: Row, random_: random.Random) -> Example:
    """Texts and images in turns. Raises BadRow."""
    del random_
    shown = row.images("image", "images")
    images = iter(shown)
    spoken = row.get("conversations")
    if not isinstance(spoken, list):
        raise BadRow("conversations must be a list")
    turns: list[Turn] = []
    for i, said in enumerate(spoken, start=1):
        if not isinstance(said, Mapping) or said.get("from") not in ("human", "gpt", "system"):
            raise BadRow(f'turn {i} of conversations is not from "human", "gpt" or "system"')
        text = text_of(said.get("value"), f"turn {i} of conversations")
        if said["from"] == "gpt":
            turns.append(Turn(text, learn=True))
            continue
        for place, part in enumerate(text.split(_MARK)):
            if place:
                image = next(images, None)
                if image is None:
                    raise BadRow(f"has more {_MARK} than the {len(shown)} images it names")
                turns.append(Turn(image=image))
            if part.strip():
                turns.append(Turn(part.strip()))
    if next(images, None) is not None:
        raise BadRow(f"names {len(shown)} images, but has fewer {_MARK}")
    if not any(turn.learn for turn in turns):
        raise BadRow("has nothing to learn: no turn is from gpt")
    return Example(turns=tuple(turns))
