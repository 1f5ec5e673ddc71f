"""Function plot: draw the graph of a formula into given axes.

Levels: 1 lines; 2 parabolas and absolute values; 3 sines; 4 the derivative of a cubic. Axes go from -5 to 5. A state is
the height of the curve at each sampled column, in units from the top plus one; 0 where it is outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np

from uni_train.data_gen.canvas import INK, PAPER, RED, Canvas, near
from uni_train.data_gen.puzzle import NANO, UNITS, Facts, Problem, Puzzle, State
from uni_train.data_gen.registry import scoring_beside, task

REACH = 5.0  # of both axes, to either side
CLEAR = 4.7  # beyond it a curve crosses the border within a column, or it would lie along it
SHARE = 0.4  # of the columns have the curve inside
NEAR = {False: 4, True: 1}  # units that a curve may be off; True: nano
LINE = {False: 4, True: 1}  # units: how thick it is drawn; True: nano
BESIDE = {False: 8, True: 1}  # units around it that are not compared: it may be off, its edges may be soft; True: nano
UNBROKEN = 0.7  # of the rows between a curve's ends in a column are red
MISSED = 0.03  # of the columns may lack the curve, or have one too many
_MARGIN, _STEP = 16, 4  # units of a plain picture: around the axes, from column to column
_GRID = (215, 215, 222)
Function = Callable[[float], float]


@task("function_plot")
@dataclass(frozen=True)
class FunctionPlot(Puzzle):
    """Plot a function; the curve's height in each column and the axes are checked."""

    name = "function_plot"
    title = "Function plots"
    sets, variants, chance = scoring_beside(__file__)
    lazy_ways = ("copy of the input", "mirrored at the x axis", "mirrored at the y axis", "y = 0")

    def problem(self, random: Random, level: int) -> Problem:
        while True:
            formula, described, function = _FORMULAS[level](random, fine=1 if self.style == NANO else 2)
            values = [function(x) for x in self._columns()]
            heights = [self._height(y) for y in values]
            along = any(CLEAR < abs(y) < REACH and CLEAR < abs(after) < REACH for y, after in pairwise(values))
            if sum(map(bool, heights)) >= SHARE * len(heights) and not along:
                break
        points = ", ".join(f"({x}, {function(x):.4g})" for x in range(-4, 5, 2))
        return Problem(
            prompt=f"Draw {described} as a red curve into the axes, for x from -5 to 5.",
            given=[0] * len(heights),
            solution=heights,
            canonical=described,
            thought=f"The curve is y = {formula}. It goes through {points}.",
            answer=f"y = {formula}",
        )

    def size(self, facts: Facts) -> tuple[int, int]:
        return (32, 32) if facts["style"] == NANO else (UNITS, UNITS)

    def _geometry(self, style: str) -> tuple[int, int, int]:
        """Where the axes begin, how long they are, from column to column; in units."""
        return (0, 32, 1) if style == NANO else (_MARGIN, UNITS - 2 * _MARGIN, _STEP)

    def _columns(self) -> list[float]:
        """x of the middles of the columns."""
        _, side, step = self._geometry(self.style)
        return [REACH * (2 * (at + step / 2) / side - 1) for at in range(0, side, step)]

    def _height(self, y: float) -> int:
        _, side, _ = self._geometry(self.style)
        row = math.floor((REACH - y) / (2 * REACH) * side)
        return row + 1 if 0 <= row < side else 0

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        begin, side, step = self._geometry(facts["style"])
        nano = facts["style"] == NANO
        middle, end = begin + side / 2, begin + side
        for number in () if nano else range(-5, 6):
            at = middle + side * number / (2 * REACH)
            canvas.rect((at - 0.5, begin, at + 0.5, end), _GRID)
            canvas.rect((begin, at - 0.5, end, at + 0.5), _GRID)
        before, after = (0, 1) if nano else (1, 1)
        canvas.rect((middle - before, begin, middle + after, end), INK)
        canvas.rect((begin, middle - before, end, middle + after), INK)
        for number in () if nano else range(-4, 5, 2):
            at = middle + side * number / (2 * REACH)
            if number:
                canvas.text((middle + 9, at), str(number), 8)
                canvas.text((end - (at - begin), middle + 9), str(number), 8)
        places: list[tuple[float, float]] = []
        for k, row in enumerate((*state, 0)):
            if row:
                places.append((begin + row - 0.5, begin + (k + 0.5) * step))
            elif places:
                canvas.line(places if len(places) > 1 else places * 2, LINE[nano], RED)
                places = []

    def read(self, facts: Facts, image: np.ndarray) -> Sequence[int]:
        """Middles of what is red in each column; its upper end where that is no single line, or too thick for one."""
        begin, side, step = self._geometry(facts["style"])
        inner = _red(image)[begin : begin + side, begin : begin + side].reshape(side, side // step, step)
        red = np.asarray(inner.any(axis=2))
        there, count = red.any(axis=0), red.sum(axis=0)
        first, last = red.argmax(axis=0), side - 1 - red[::-1].argmax(axis=0)
        middles = (first + last) / 2
        steep = np.abs(np.diff(middles, prepend=middles[:1]))
        steep = np.maximum(steep, np.roll(steep, -1))
        thick = count > 2 * LINE[facts["style"] == NANO] * np.hypot(1, steep / step) + steep + 2
        broken = count < (last - first + 1) * UNBROKEN
        return np.where(there, np.where(thick | broken, first, middles).astype(int) + 1, 0).tolist()

    def away(self, facts: Facts, state: State, seen: np.ndarray) -> tuple[float, int, int]:
        """From the empty axes, with the curve painted out: its columns are judged one by one."""
        import cv2

        curve = self.picture(facts, facts["solution"] if self.solves(facts, state) else state)
        side = 2 * BESIDE[facts["style"] == NANO] + 1
        beside = cv2.dilate(_red(curve).astype(np.uint8), np.ones((side, side), dtype=np.uint8))
        empty = tuple(facts["given"])
        return super().away(facts, empty, np.where(beside[..., None] > 0, self.picture(facts, empty), seen))

    def landmarks(self, facts: Facts, state: State) -> Sequence[int]:
        return facts["given"]  # the axes: a curve may lie anywhere

    def steps(self, facts: Facts) -> Iterator[Sequence[int]]:
        """The curve from left to right, in eighths."""
        solution = facts["solution"]
        columns = [k for k, row in enumerate(solution) if row]
        for eighth in range(9):
            drawn = columns[: len(columns) * eighth // 8]
            yield [solution[k] if k in drawn else 0 for k in range(len(solution))]

    def solves(self, facts: Facts, state: State) -> bool:
        return self.progress(facts, state) >= 1 - MISSED

    def breaches(self, facts: Facts, state: State) -> list[str]:
        return [] if any(state) else ["there is no curve"]

    def progress(self, facts: Facts, state: State) -> float:
        """The share of the columns of both curves in which they are near each other.

        The column in which the curve leaves the axes, and the one after, may have it or not.
        """
        seen, wanted = np.array(state), np.array(facts["solution"])
        slope = np.abs(np.diff(wanted, prepend=wanted[:1], append=wanted[-1:]))
        slope = np.maximum(slope[:-1], slope[1:]) / 2  # where it is steep, a column holds many rows
        close = (np.abs(seen - wanted) <= np.maximum(NEAR[facts["style"] == NANO], slope)) & (seen > 0) & (wanted > 0)
        inside = np.pad(wanted > 0, 1)
        sure = inside[:-2] & inside[1:-1] & inside[2:]
        beyond = (seen > 0) & ~(inside[:-2] | inside[1:-1] | inside[2:])
        return float((close & sure).sum() / (sure.sum() + beyond.sum()))

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        solution = np.array(facts["solution"])
        side = self._geometry(facts["style"])[1]
        flipped = np.where(solution > 0, side + 1 - solution, 0)
        return {"copy of the input": facts["given"], "mirrored at the x axis": flipped.tolist(),
                "mirrored at the y axis": solution[::-1].tolist(), "y = 0": [side // 2] * len(solution)}  # fmt: skip


def _red(image: np.ndarray) -> np.ndarray:
    """Where the curve may be, bool [H, W]."""
    return near(image, RED, (PAPER, _GRID, INK))


# Steps are `fine` times as small in plain pictures. Nearly all formulas differ by more than a curve may be off.


def _line(random: Random, fine: int) -> tuple[str, str, Function]:
    a = random.randint(1, 20 * fine) / (5 * fine) * random.choice((-1, 1))
    b = random.randint(-12 * fine, 12 * fine) / (2.5 * fine)
    formula = _sum((a, "x"), (b, ""))
    return formula, f"y = {formula}", lambda x: a * x + b


def _bent(random: Random, fine: int) -> tuple[str, str, Function]:
    a = random.choice((0.5, 0.75, 1, 1.25, 1.5, 2)) * random.choice((-1, 1))
    h, k = random.randint(-4 * fine, 4 * fine) / fine, random.randint(-8 * fine, 8 * fine) / (2 * fine)
    inner, bars = _sum((1, "x"), (-h, "")), random.random() < 0.5
    bent = f"|{inner}|" if bars else f"({inner})^2" if h else "x^2"
    formula = _sum((a, bent), (k, ""))
    return formula, f"y = {formula}", lambda x: a * (abs(x - h) if bars else (x - h) ** 2) + k


def _sine(random: Random, fine: int) -> tuple[str, str, Function]:
    a, b = random.choice([k / 2 for k in range(-6, 7) if k]), random.randint(2, 8) / 4
    c = random.randint(0, 3 * fine - 1) / fine  # below pi, where the sine with the other sign of a begins
    k = random.randint(-4 * fine, 4 * fine) / (2 * fine)
    formula = _sum((a, f"sin({_sum((b, 'x'), (c, ''))})"), (k, ""))
    return formula, f"y = {formula}", lambda x: a * math.sin(b * x + c) + k


def _derivative(random: Random, fine: int) -> tuple[str, str, Function]:
    a = random.choice((0.5, 1, 1.5, 2)) * random.choice((-1, 1))
    b, c = random.randint(-10, 10) / 2, random.randint(-8 * fine, 8 * fine) / (2 * fine)
    formula, cubic = _sum((a, "x^2"), (b, "x"), (c, "")), _sum((a, "x^3/3"), (b, "x^2/2"), (c, "x"))
    return formula, f"the derivative of y = {cubic}", lambda x: a * x**2 + b * x + c


def _sum(*terms: tuple[float, str]) -> str:
    """ "-2 x + 0.5": of (factor, what is multiplied), without those whose factor is 0."""
    spelled = ""
    for factor, what in terms:
        if factor:
            size = "" if what and abs(factor) == 1 else f"{abs(factor):g} "
            sign = (" - " if factor < 0 else " + ") if spelled else "-" if factor < 0 else ""
            spelled += f"{sign}{size}{what}".rstrip()
    return spelled or "0"


_FORMULAS = {1: _line, 2: _bent, 3: _sine, 4: _derivative}
