"""Which steps of a run are random, and trained on; the others are Euler steps.

Few random steps are cheap to train on and leave little noise in the image: Flow-GRPO-Fast draws a window every epoch,
MixGRPO slides one along. Both are functions of the epoch, the same on every rank: a run that is continued in the
middle goes on with the same windows. (The published rule reseeds Python's generator with the number of the process, so
each process keeps one window for the whole run. `draw_window` given that generator does the same.)
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal

from uni_train.data_gen.seeds import rng


@dataclass(frozen=True, slots=True)
class Window:
    """Steps `start` to `start + size - 1`."""

    start: int
    size: int

    @property
    def steps(self) -> range:
        return range(self.start, self.start + self.size)

    def __contains__(self, step: int) -> bool:
        return step in self.steps


def draw_window(size: int, bounds: tuple[int, int], generator: random.Random) -> Window:
    """A window of `size` steps anywhere in [bounds[0], bounds[1]), each place as likely.

    Raises:
        ValueError: it does not fit.
    """
    low, high = bounds
    if size < 1 or low < 0 or low + size > high:
        raise ValueError(f"a window of {size} steps does not fit between steps {low} and {high}")
    return Window(generator.randint(low, high - size), size)


def epoch_window(seed: int, epoch: int, size: int, bounds: tuple[int, int]) -> Window:
    """The window of an epoch of the run with this seed (Flow-GRPO-Fast; MixGRPO's "random").

    Raises:
        ValueError: it does not fit.
    """
    return draw_window(size, bounds, rng("sde window", seed, epoch))


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """MixGRPO (Li et al. 2025, arXiv 2507.21802): the window starts at the noisy end and moves on every few iterations.

    It stays long at the noisy end, where the image's layout is settled, if `pace` is "exponential": a window that
    starts at step l is kept for ``every exp(-decay max(0, l - threshold))`` iterations, rounded up.

    Attributes:
        size: steps in the window.
        steps: steps it moves along; the last window ends there.
        every: iterations before it moves.
        stride: steps it moves by.
        roll_back: start again after the last window, instead of staying there.
    """

    size: int
    steps: int
    every: int = 25
    stride: int = 1
    pace: Literal["constant", "exponential"] = "constant"
    decay: float = 0.1
    threshold: int = 13
    roll_back: bool = False

    def __post_init__(self) -> None:
        if not (1 <= self.size <= self.steps and self.every >= 1 and self.stride >= 1):
            raise ValueError(
                f"a window of {self.size} steps, moved by {self.stride} every {self.every} iterations, "
                f"does not fit into {self.steps} steps"
            )

    def kept(self, start: int) -> int:
        """Iterations that the window starting there is kept."""
        if self.pace == "constant":
            return self.every
        return math.ceil(self.every * math.exp(-self.decay * max(0, start - self.threshold)))

    def at(self, iteration: int) -> Window:
        """The window of an iteration, counted from 0."""
        last = self.steps - self.size
        starts = [*range(0, last, self.stride), last]
        if self.roll_back:
            iteration %= sum(map(self.kept, starts))
        for start in starts:
            iteration -= self.kept(start)
            if iteration < 0:
                return Window(start, self.size)
        return Window(last, self.size)
