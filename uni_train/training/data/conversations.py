"""Conversations: `messages` of chat templates and trl, or LLaVA's `conversations`; and `image` or `images` if any.

    {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]},
                  {"role": "assistant", "content": "A cat."}], "images": ["a.jpg"]}
    {"conversations": [{"from": "human", "value": "<image>\\nWhat is this?"}, {"from": "gpt", "value": "A cat."}], ...}

Also trl's `prompt` and `completion`, each of them messages or a text; of these the completion alone is learned.

Every `<image>` and `{"type": "image"}` stands for the next image, if the part does not name one as `image`, `url` or
`path`. Where no turn has an image, all come before the first turn but that of the system, as in trl. What the assistant
says and draws is learned, but for turns of `weight` 0. As in ChatML, no order is asked for, but `system` comes first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from uni_train.models.base import Example, Turn
from uni_train.training.data.rows import BadRow, Row, missing, text_of

KEYS = {"messages", "conversations", "completion"}
"""Each of these alone says that a row is a conversation."""
_MARK = "<image>"
_LEARNED, _SHOWN = ("assistant", "gpt"), ("user", "human", "system")
_READ = ("role", "content", "from", "value", "weight")


def parse(row: Row, random_: random.Random) -> Example:
    """Texts and images in turns. Raises BadRow."""
    del random_
    shown = row.images("image", "images")
    key, spoken = _spoken(row)
    turns: list[Turn] = []
    first = 0
    for i, said in enumerate(spoken, start=1):
        where = f"turn {i} of {key}"
        role = said.get("role", said.get("from")) if isinstance(said, Mapping) else None
        if role not in (*_LEARNED, *_SHOWN):
            raise BadRow(f'{where} is not from "user" ("human"), "assistant" ("gpt") or "system"')
        unread = [name for name, value in said.items() if name not in _READ and not missing(value)]
        if unread or said.get("weight") not in (None, 0, 1):
            raise BadRow(f"{where} has {unread[0] if unread else 'a weight of neither 0 nor 1'}, which is not read")
        if role == "system" and i > 1:
            raise BadRow(f"{where} is from system, which may only come first")
        learn = role in _LEARNED and said.get("weight") != 0
        turns += [replace(turn, learn=learn) for turn in _turns(said.get("content", said.get("value")), where, row)]
        first = len(turns) if role == "system" else first
    if all(turn.text is not None for turn in turns):
        turns[first:first] = [Turn()] * len(shown)
    places = [place for place, turn in enumerate(turns) if turn.text is None and turn.image is None]
    if len(places) != len(shown):
        raise BadRow(f"names {len(shown)} images, but has {len(places)} {_MARK} for them")
    for place, image in zip(places, shown, strict=True):
        turns[place] = replace(turns[place], image=image)
    if not any(turn.learn for turn in turns):
        raise BadRow("has nothing to learn: no turn is from the assistant (gpt)")
    if turns[0].learn:
        raise BadRow(f"turn 1 of {key} is from the assistant (gpt), and nothing is shown before it")
    return Example(turns=tuple(turns))


def _spoken(row: Row) -> tuple[str, list[Any]]:
    """The turns, and their key."""
    key, spoken = row.first("messages", "conversations", "completion")
    asked: Any = []
    if key == "completion":
        key, asked = "prompt + completion", row.get("prompt")
        asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        spoken = [{"role": "assistant", "content": spoken}] if isinstance(spoken, str) else spoken
    if not isinstance(asked, list) or not isinstance(spoken, list):
        raise BadRow(f"{key} is no list of turns")
    return key, [*({**said, "weight": 0} if isinstance(said, Mapping) else said for said in asked), *spoken]


def _turns(content: Any, where: str, row: Row) -> Iterator[Turn]:
    """Texts and images, and an empty one at each place of the row's images."""
    if isinstance(content, str):
        for place, text in enumerate(text_of(content, where).split(_MARK)):
            yield from [Turn()] * bool(place)
            yield from [Turn(text.strip())] * bool(text.strip())
        return
    if not isinstance(content, list) or not content:
        raise BadRow(f"{where} has no content: neither a text nor a list of texts and images")
    for number, part in enumerate(content, start=1):
        kind, name = part.get("type") if isinstance(part, Mapping) else None, f"part {number} of {where}"
        if kind == "text":
            yield from _turns(text_of(part.get("text"), name), where, row)
        elif kind == "image":
            given = [part[key] for key in ("image", "url", "path") if not missing(part.get(key))]
            yield Turn(image=row.image(given[0], name)) if given else Turn()
        else:
            raise BadRow(f"{name} is neither a text nor an image")
