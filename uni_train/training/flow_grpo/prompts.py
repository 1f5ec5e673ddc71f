"""What an epoch asks. The prompts of an epoch are a function of the run's seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from data_gen.seeds import rng


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, asked `group_size` times.

    Attributes:
        id: names it in errors, and decides its seeds.
        images: uint8 [H, W, 3] each, shown before the text.
        columns: what rewards are told beside it (see rewards.contract).
    """

    id: str
    text: str
    images: tuple[np.ndarray, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)


class Prompts(Protocol):
    """Where prompts come from."""

    def epoch(self, epoch: int, count: int) -> Sequence[Prompt]:
        """`count` prompts, the same whenever they are asked for."""
        ...


@dataclass(frozen=True)
class PromptList:
    """A fixed list, gone through in random order: every prompt once before any comes twice."""

    prompts: Sequence[Prompt]
    seed: int

    def epoch(self, epoch: int, count: int) -> list[Prompt]:
        """Prompts number epoch * count to epoch * count + count - 1 of the endless shuffled list."""
        size = len(self.prompts)
        found: list[Prompt] = []
        for place in range(epoch * count, (epoch + 1) * count):
            turn, at = divmod(place, size)
            found.append(self.prompts[self._order(turn)[at]])
        return found

    def _order(self, turn: int) -> list[int]:
        order = list(range(len(self.prompts)))
        rng("prompts", self.seed, turn).shuffle(order)
        return order
