"""The names of UniSandbox's sets (paper 004, section 3.1), and what each is drawn from.

The six reasoning sets are the paper's; those beside them are ours, and asked where `evaluation.sets` names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from data_gen.task import Item

SETTINGS = ("normal", "cot")
SAID = "said"  # the setting of direct answers in words, without an image; asked where it is named
TASKS = ("maths", "mapping")
LEVELS = (1, 2, 3)
SETS = ("math1", "math2", "math3", "mapping1", "mapping2", "mapping3")
_PREFIX = {"maths": "math", "mapping": "mapping"}


@dataclass(frozen=True, slots=True)
class Source:
    """What a set is drawn from. split: None for the one that is evaluated. options: of the task, replacing its own."""

    task: str
    level: int
    variant: str = ""
    split: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


# Sets that are asked beside the six where evaluation.sets names them: variant -> its task, and how it differs.
VARIANTS = {"seen": ("maths", "new objects, seen expressions"), "chain": ("mapping", "rules in chain order")}
_CHAIN = {"shuffle": False, "distractors": 0}
SOURCES = {
    **{f"math{level}": Source("maths", level) for level in LEVELS},
    **{f"mapping{level}": Source("mapping", level) for level in LEVELS},
    **{f"math{level}_seen": Source("maths", level, "seen", split="seen") for level in LEVELS},
    **{f"mapping{level}_chain": Source("mapping", level, "chain", options=_CHAIN) for level in LEVELS},
}


def set_name(task: str, level: int, variant: str = "") -> str:
    """("maths", 2) -> "math2"; ("maths", 2, "seen") -> "math2_seen"."""
    return f"{_PREFIX[task]}{level}" + (f"_{variant}" if variant else "")


def set_of(item: Item) -> str:
    """The set in which an item is counted: of its task and level, unless `named` says otherwise."""
    return str(item.facts.get("set") or set_name(item.task, item.level))


def named(items: Sequence[Item], name: str) -> list[Item]:
    """Items as those of the set `name`. One beside the six is written into facts and ids, which no other set shares."""
    if not SOURCES[name].variant:
        return list(items)

    def renamed(identity: str) -> str:
        return f"{name}/{identity.partition('/')[2]}"

    return [
        replace(
            item,
            id=renamed(item.id),
            pair=None if item.pair is None else renamed(item.pair),
            facts={**item.facts, "set": name},
        )
        for item in items
    ]
