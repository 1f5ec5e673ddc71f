"""What may be seen where so many of one thing are asked for: the same, or something near."""

from __future__ import annotations

import random

from uni_train.data_gen.objects import NANO
from uni_train.data_gen.task import Item

MAX_COUNT = 6
SEEN = {"same": 0.38, "other object": 0.22, "other count": 0.12, "both": 0.08, "unclear": 0.2}
"""What is seen beside what is asked -> share of the comparisons; equal counts or equal objects alone decide nothing."""


def beside(name: str, count: int, random_: random.Random) -> tuple[str, int] | None:
    """What may be seen where `count` of `name` are asked: the same, a near miss, or nothing clear (None)."""
    kind = random_.choices(tuple(SEEN), tuple(SEEN.values()))[0]
    if kind == "unclear":
        return None
    if kind in ("other object", "both"):
        name = random_.choice([noun.singular for noun in NANO.nouns if noun.singular != name])
    if kind in ("other count", "both"):
        count = random_.choice([n for n in range(1, MAX_COUNT + 1) if n != count])
    return name, count


def beside_item(item: Item, random_: random.Random) -> tuple[str, int] | None:
    """The same of an item of a `SpriteTask`; another object is often one that its prompt names."""
    name = item.facts["object"]
    shown = beside(name, item.facts["count"], random_)
    if shown is not None and shown[0] != name and "other" in item.facts and random_.random() < 0.5:
        return item.facts["other"], shown[1]
    return shown
