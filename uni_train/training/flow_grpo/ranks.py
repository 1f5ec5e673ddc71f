"""Reinforcement over several devices: each draws, rewards and trains on whole groups of its own.

Which groups there are, what is drawn for them, their advantages and which pictures an update has follow from the run's
seed alone; ranks share the work and change no number but by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from uni_train.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """One of `ranks` processes."""

    rank: int = 0
    ranks: int = 1

    def mine(self, groups: int) -> range:
        """The groups of this rank: equal parts, in order."""
        each = groups // self.ranks
        return range(self.rank * each, (self.rank + 1) * each)

    def gather(self, value: T) -> list[T]:
        """`value` of every rank (anything that pickles, sent between processes of one run), the same list on all."""
        if self.ranks == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.ranks
        dist.all_gather_object(values, value)
        return values

    def together(self, work: Callable[[], T]) -> T:
        """`work()`; where it fails on one rank for a reason of the user's, it fails on all, which else would wait.

        Raises:
            UserError: that of the first rank that has one.
        """
        result: T | None = None
        own: UserError | None = None
        try:
            result = work()
        except UserError as error:
            own = error
        told = None if own is None else (own.message, own.hint)
        failed = next((one for one in self.gather(told) if one is not None), None)
        if failed is not None:
            raise own or UserError(failed[0], failed[1])
        return result  # type: ignore[return-value]


ALONE = Ranks()
