"""Which steps of a run are random, and trained on; the others are Euler steps.

Few random steps are cheap to train on and leave little noise in the image: Flow-GRPO-Fast draws a window every epoch,
MixGRPO slides one along. Both are functions of the epoch, the same on every rank: a run that is continued in the
middle goes on with the same windows. The published rule reseeds Python's generator with the number of the process. So
each process keeps one window for the whole run. `draw_window` given that generator does the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from uni_train.core.seeds import rng


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


def sliding_window(epoch: int, size: int, bounds: tuple[int, int], every: int) -> Window:
    """MixGRPO (Li et al. 2025, arXiv 2507.21802): the window starts at the noisy end, bounds[0].

    It moves on by one step after `every` epochs, and stays at bounds[1] - size, the last place.
    """
    low, high = bounds
    return Window(min(low + epoch // every, high - size), size)
