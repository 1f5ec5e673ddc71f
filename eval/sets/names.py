"""The names of sets: UniSandbox's (Niu et al. 2025, arXiv 2511.20561, sections 3.1 and 4), and those beside them.

The six reasoning sets and the two of knowledge are the paper's. Those beside them, of other tasks or variants of a
task, are ours (`uni_train.data_gen.registry.sources`), and asked where `evaluation.sets` names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uni_train.config.schema import SIX_SETS
from uni_train.data_gen.registry import TASKS, sources
from uni_train.data_gen.task import Item

SETTINGS = ("normal", "cot")
SAID = "said"  # the setting of direct answers in words, without an image; asked where it is named
SETS = SIX_SETS
KNOWLEDGE_SETS = ("forward", "inverse")


def all_sets() -> tuple[str, ...]:
    """Every set of reasoning, in the order in which they are shown: the six first."""
    return tuple(dict.fromkeys([*SETS, *sources()]))


def per_unit(name: str) -> int:
    """Questions that count once in a set: the two of a pair of mapping, else one."""
    source = sources().get(name)
    return 1 if source is None else TASKS.get(source.task).items_per_draw


def named(items: Sequence[Item], name: str) -> list[Item]:
    """Items as those of the set `name`. One beside the six is written into facts and ids, which no other set shares."""
    if not sources()[name].variant:
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
