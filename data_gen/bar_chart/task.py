"""Bar chart: draw what a query of a small table gives; SQLite computes the heights.

Levels: 1 a number for each bar; 2 sums of the rows of a bar; 3 sums of those rows alone that have one value; 4 how many
rows are above a number. In the style nano there is level 1 alone, whose numbers stand below the axis.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from uni_train.data_gen.canvas import BLUE, INK, PAPER, Canvas, near
from uni_train.data_gen.puzzle import NANO, UNITS, Facts, Problem, Puzzle, State
from uni_train.data_gen.registry import scoring_beside, task

CITIES = ("Lima", "Oslo", "Rome", "Bern", "Cairo", "Delhi", "Seoul", "Quito")
GOODS = ("tea", "rice", "salt")
TOP = 10  # of the axis
BARS = 5
NANO_BARS, NANO_TOP = 4, 9
_GRID = (205, 205, 210)
_LEFT, _BOTTOM, _UNIT, _PITCH = 36, 222, 20, 42  # units of a plain picture: the axes, one of a bar, bar to bar


@task("bar_chart")
@dataclass(frozen=True)
class BarChart(Puzzle):
    """Draw the bars of a query; heights, axes and labels are checked."""

    name = "bar_chart"
    title = "Bar charts"
    sets, variants, chance = scoring_beside(__file__)
    nano_levels = (1,)
    lazy_ways = ("copy of the input", "right numbers in random order", "equal bars", "the first row of each city")

    def problem(self, random: Random, level: int) -> Problem:
        if self.style == NANO:
            return _numbers_below(random)
        cities = random.sample(CITIES, BARS)
        where = random.choice(GOODS) if level == 3 else str(random.randint(2, 6)) if level == 4 else ""
        while True:
            rows = _rows(random, cities, level)
            heights = ask(rows, cities, level, where)
            if max(heights) <= TOP and len(set(heights)) > 2:
                break
        what = {
            1: "the number sold in each city", 2: "the total sold in each city",
            3: f"the total of {where} sold in each city", 4: f"how many rows of each city have more than {where} sold",
        }[level]  # fmt: skip
        table = "; ".join(f"{city}, {good}, {sold}" for city, good, sold in rows)
        spelled = ", ".join(f"{city} {height}" for city, height in zip(cities, heights, strict=True))
        return Problem(
            prompt=f"A table has the columns city, product, sold: {table}. Draw a blue bar for {what}.",
            given=[0] * BARS,
            solution=heights,
            canonical=f"{level}:{where}:{heights}" if level == 1 else f"{level}:{where}:{sorted(rows)}",
            thought=f"The heights are {spelled}.",
            answer=spelled,
            facts={"cities": cities, "rows": [list(row) for row in rows], "where": where},
        )

    def size(self, facts: Facts) -> tuple[int, int]:
        return (2 * NANO_TOP + 10, 8 * NANO_BARS) if facts["style"] == NANO else (UNITS, UNITS)

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        bottom, left, unit, pitch, inset = _geometry(facts)
        if facts["style"] == NANO:
            for k, number in enumerate(facts["solution"]):
                canvas.text((bottom + 5.5, 8 * k + 4), str(number), 5)
            canvas.rect((bottom, 0, bottom + 1, 8 * NANO_BARS), INK)
        else:
            for number in range(TOP + 1):
                y = bottom - unit * number
                canvas.rect((y - 1, left, y + 1, 246), _GRID)
                canvas.text((y, left - 14), str(number), 9)
            for k, city in enumerate(facts["cities"]):
                canvas.text((bottom + 16, left + pitch * (k + 0.5)), city, 9)
            canvas.rect((bottom - unit * TOP - 4, left - 3, bottom + 3, left), INK)
            canvas.rect((bottom, left - 3, bottom + 3, 246), INK)
        for k, height in enumerate(state):
            x = left + pitch * k
            canvas.rect((bottom - unit * height, x + inset, bottom, x + pitch - inset), BLUE)

    def read(self, facts: Facts, image: np.ndarray) -> Sequence[int]:
        bottom, left, unit, pitch, inset = _geometry(facts)
        top = NANO_TOP if facts["style"] == NANO else TOP
        blue = near(image, BLUE, (PAPER, _GRID, INK))[bottom - unit * top : bottom]
        middles = [left + pitch * k for k in range(len(facts["given"]))]
        return [min(top, round(blue[:, x + inset + 1 : x + pitch - inset - 1].mean() * top)) for x in middles]

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        heights = facts["solution"]
        rows: dict[str, int] = {}
        for city, _, sold in facts.get("rows", ()):
            rows.setdefault(city, sold)
        first = [min(TOP, rows.get(city, 0)) for city in facts.get("cities", ())]
        return {**Puzzle.lazy(self, facts, random), "equal bars": [round(sum(heights) / len(heights))] * len(heights),
                **({"the first row of each city": first} if first != heights and first else {})}  # fmt: skip


def _geometry(facts: Facts) -> tuple[int, int, int, int, int]:
    """Where the bottom and the left of the first bar are, one of height, bar to bar, the gap beside a bar."""
    return (2 * NANO_TOP, 0, 2, 8, 1) if facts["style"] == NANO else (_BOTTOM, _LEFT, _UNIT, _PITCH, 7)


def _numbers_below(random: Random) -> Problem:
    heights = [random.randint(1, NANO_TOP) for _ in range(NANO_BARS)]
    spelled = ", ".join(map(str, heights))
    return Problem(
        prompt="Draw a blue bar above each number, as high as the number says.",
        given=[0] * NANO_BARS,
        solution=heights,
        canonical=str(heights),
        thought=f"The heights are {spelled}.",
        answer=spelled,
    )


def _rows(random: Random, cities: Sequence[str], level: int) -> list[tuple[str, str, int]]:
    """(city, product, sold) in random order."""
    if level == 1:
        return [(city, GOODS[0], random.randint(1, TOP)) for city in cities]
    most = {2: 4, 3: 4, 4: 9}[level]
    rows = [
        (city, random.choice(GOODS), random.randint(1, most)) for city in cities for _ in range(random.randint(1, 4))
    ]
    random.shuffle(rows)
    return rows


def ask(rows: Sequence[tuple[str, str, int]], cities: Sequence[str], level: int, where: str) -> list[int]:
    """The height of each city's bar, by SQLite."""
    value, condition, values = {
        3: ("SUM(sold)", "WHERE product = ?", (where,)),
        4: ("COUNT(*)", "WHERE sold > CAST(? AS INTEGER)", (where,)),
    }.get(level, ("SUM(sold)", "", ()))
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE sales (city TEXT, product TEXT, sold INTEGER)")
        connection.executemany("INSERT INTO sales VALUES (?, ?, ?)", rows)
        heights = dict(connection.execute(f"SELECT city, {value} FROM sales {condition} GROUP BY city", values))
    finally:
        connection.close()
    return [int(heights.get(city, 0)) for city in cities]
