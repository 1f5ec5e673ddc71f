"""Clock: the hands after some time.

Levels: 1 adds whole hours; 2 adds 5 to 55 minutes; 3 any time in steps of five minutes; 4 in steps of one minute.
The state is one number, the minutes since twelve o'clock; both hands follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from uni_train.data_gen.canvas import BLUE, INK, PAPER, RED, Canvas, near
from uni_train.data_gen.puzzle import NANO, UNITS, Facts, Problem, Puzzle, State
from uni_train.data_gen.registry import scoring_beside, task

HALF_DAY = 12 * 60  # minutes
_FACE = (255, 246, 225)


@task("clock")
@dataclass(frozen=True)
class Clock(Puzzle):
    """Move the hands of a clock; both hands and the face are checked."""

    name = "clock"
    title = "Clocks"
    sets, variants, chance = scoring_beside(__file__)
    nano_levels = (1, 2, 3)
    lazy_ways = ("copy of the input", "an hour later", "minutes never make an hour")

    def problem(self, random: Random, level: int) -> Problem:
        step = 1 if level == 4 else 5
        now = random.randrange(0, HALF_DAY, step)
        later = {1: 60 * random.randint(1, 11), 2: 5 * random.randint(1, 11)}.get(level)
        later = random.randrange(step, HALF_DAY, step) if later is None else later
        then = (now + later) % HALF_DAY
        hours, minutes = divmod(later, 60)
        spelled = " and ".join(
            f"{n} {name}{'s' if n > 1 else ''}" for n, name in ((hours, "hour"), (minutes, "minute")) if n
        )
        return Problem(
            prompt=f"The red hand shows the minutes, the blue hand the hours. Draw the clock {spelled} later.",
            given=[now],
            solution=[then],
            canonical=f"{now}+{later}",
            thought=f"It is {_spell(now)}. {spelled.capitalize()} later it is {_spell(then)}.",
            answer=_spell(then),
            facts={"later": later},
        )

    def size(self, facts: Facts) -> tuple[int, int]:
        return (24, 24) if facts["style"] == NANO else (UNITS, UNITS)

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        (time,) = state
        nano = facts["style"] == NANO
        side = self.size(facts)[0]
        centre, radius = _centre(side, nano), 0.46 * side
        canvas.disc(centre, radius, _FACE)
        if not nano:
            canvas.ring(centre, radius, 4, INK)
        for hour in range(1, 13):
            if nano:
                y, x = (math.floor(at) for at in _end(hour / 12, 10.5, centre))
                canvas.rect((y, x, y + 1, x + 1), INK)
            else:
                canvas.line([_end(hour / 12, at * radius, centre) for at in (0.9, 0.98)], 4, INK)
                canvas.text(_end(hour / 12, 0.78 * radius, centre), str(hour), 0.062 * side)
        for turn, length, width, colour in _hands(time, radius):
            canvas.line([centre, _end(turn, length, centre)], 1 if nano else width, colour)
        if not nano:
            canvas.disc(centre, 7, INK)

    def read(self, facts: Facts, image: np.ndarray) -> Sequence[int]:
        """The time whose hands are nearest to the middles of what is red and what is blue."""
        side, nano = self.size(facts)[0], facts["style"] == NANO
        middle, _ = _centre(side, nano)
        turns = []
        for colour, other in ((RED, BLUE), (BLUE, RED)):
            y, x = np.nonzero(near(image, colour, (other, _FACE, PAPER, INK)))
            if not len(y):
                return (facts["given"][0],)
            dy, dx = y.mean() + 0.5 - middle, x.mean() + 0.5 - middle
            turns.append(math.atan2(dx, -dy) / math.tau)
        times = np.arange(0, HALF_DAY, 5 if nano else 1)
        away = [
            np.abs((times / period - turn + 0.5) % 1 - 0.5) for turn, period in zip(turns, (60, HALF_DAY), strict=True)
        ]
        return (int(times[np.argmin(away[0] + away[1])]),)

    def kept(self, facts: Facts, state: State) -> bool:
        return True  # the face is seen to be kept; nothing of the hands is

    def progress(self, facts: Facts, state: State) -> float:
        """Half for each hand that is right."""
        (time,), (wanted,) = state, facts["solution"]
        return (time % 60 == wanted % 60) / 2 + (time // 60 == wanted // 60) / 2

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        (now,), later = facts["given"], facts["later"]
        hour, minutes = (now // 60 + later // 60) % 12, (now + later) % 60
        return {
            "copy of the input": (now,),
            "an hour later": ((now + 60) % HALF_DAY,),
            "minutes never make an hour": (60 * hour + minutes,),
        }


def _centre(side: int, nano: bool) -> tuple[float, float]:
    """Of the face; in nano the middle of a pixel."""
    return side / 2 + 0.5 * nano, side / 2 + 0.5 * nano


def _hands(time: int, radius: float) -> tuple[tuple[float, float, float, tuple[int, int, int]], ...]:
    """(turn, length, width, colour): the minute hand, then the hour hand above it."""
    return (time % 60 / 60, 0.68 * radius, 5, RED), (time / HALF_DAY, 0.42 * radius, 9, BLUE)


def _end(turn: float, length: float, centre: tuple[float, float]) -> tuple[float, float]:
    """Where a hand ends that has made a share of a turn to the right."""
    angle = math.tau * turn
    return centre[0] - length * math.cos(angle), centre[1] + length * math.sin(angle)


def _spell(time: int) -> str:
    return f"{time // 60 or 12}:{time % 60:02d}"
