"""Questions chosen so that trivial strategies stay at chance.

Minimisation (Pocock and Simon 1975, Biometrics 31): of the drawn questions that wait, each turn takes the one after
which all strategies together are nearest to chance. The first `m` questions are the same for every n >= m.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from uni_train.data_gen.task import Item, Strategy

TOLERANCE = 0.03  # share of the questions by which a strategy may exceed chance
AHEAD, PER_TURN = 20, 3  # drawn questions of a result that wait at first, and how many more each turn draws


def pool_size(n: int) -> int:
    """How many different questions of a result are drawn, of which `n` are chosen."""
    return AHEAD + PER_TURN * n


def balance(by_result: Sequence[Sequence[Item]], n: int, strategies: Sequence[Strategy]) -> list[Item]:
    """Up to `n` items, one of each result in turn: as many as keep every strategy within TOLERANCE above chance.

    Chance is 1 / results. One question more than chance is always allowed.

    Args:
        by_result: for each result its different items, in the order in which they were drawn.
    """
    turns = len(by_result)
    draws = [iter(items) for items in by_result]
    waiting: list[dict[tuple[bool, ...], deque[Item]]] = [{} for _ in by_result]  # which strategies are right -> items
    right = [0] * len(strategies)
    chosen: list[Item] = []
    balanced = 0
    for place in range(n):
        there = waiting[place % turns]
        for item in islice(draws[place % turns], PER_TURN + (AHEAD if place < turns else 0)):
            marks = tuple(strategy.answer(item.prompt) == item.facts["count"] for strategy in strategies)
            there.setdefault(marks, deque()).append(item)
        if not there:
            break
        chance = (place + 1) / turns
        best = min(there, key=lambda marks: sum((r + m - chance) ** 2 for r, m in zip(right, marks, strict=True)))
        chosen.append(there[best].popleft())
        if not there[best]:
            del there[best]
        right = [r + m for r, m in zip(right, best, strict=True)]
        if max(right) - chance <= max(1, TOLERANCE * (place + 1)):
            balanced = place + 1
    return chosen[:balanced]
