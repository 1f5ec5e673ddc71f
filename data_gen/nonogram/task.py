"""Nonogram: fill cells so that each row and column has runs of the given lengths; exactly one solution.

Levels 1 to 5 are grids of 4, 5, 6, 8 and 10 cells a side. Clues are digits; in the style nano they are dots, in blocks
of 4 x 4 pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product
from random import Random

from uni_train.data_gen.canvas import INK, PAPER, Canvas
from uni_train.data_gen.puzzle import NANO, Facts, Lattice, LatticePuzzle, Problem, State, least_view, side_of
from uni_train.data_gen.registry import scoring_beside, task

SIDES = {1: 4, 2: 5, 3: 6, 4: 8, 5: 10}
Runs = tuple[int, ...]
_CLUES, _FILLED = (225, 232, 245), (20, 70, 160)
_DOTS = ((0, 0), (2, 2), (0, 2), (2, 0), (1, 1))  # of a clue up to 5, in a block of nano


@task("nonogram")
@dataclass(frozen=True)
class Nonogram(LatticePuzzle):
    """Solve a nonogram; the runs of each row and column and the clues are checked."""

    name = "nonogram"
    title = "Nonograms"
    sets, variants, chance = scoring_beside(__file__)
    nano_levels = (1, 2)
    lazy_ways = ("copy of the input", "as many cells at random", "each row's runs pushed to the left")

    def problem(self, random: Random, level: int) -> Problem:
        n = SIDES[level]
        while True:
            share = random.uniform(0.45, 0.7)
            cells = [int(random.random() < share) for _ in range(n * n)]
            clues = clues_of(cells)
            if any(cells) and is_unique(clues):
                break
        rows = [cells[n * r : n * r + n] for r in range(n)]
        lines = "; ".join(f"row {r + 1}: {''.join('#' if cell else '.' for cell in row)}" for r, row in enumerate(rows))
        return Problem(
            prompt=f"Solve the nonogram: fill cells of the {n} x {n} grid, so that the runs of filled cells in each "
            "row and column have the lengths that stand beside it, in this order. A line without a number stays empty.",
            given=[0] * (n * n),
            solution=cells,
            canonical="/".join("".join(map(str, row)) for row in least_view(cells)),
            thought=f"{lines.capitalize()}.",
            answer="/".join("".join(map(str, row)) for row in rows),
            facts={"clues": [[list(runs) for runs in side] for side in clues]},
        )

    def lattice(self, facts: Facts) -> Lattice:
        n = side_of(facts["given"])
        most = (n + 1) // 2  # runs in a line
        if facts["style"] == NANO:
            return Lattice(n, n, 4, 0, 4 * most, 4 * most)
        cell = (236 - 2 * (n + 1)) // (n + most)
        room = 10 + cell * most
        return Lattice(n, n, cell, 2, room, room)

    def symbols(self, facts: Facts) -> int:
        return 2

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        lattice = self.lattice(facts)
        top, left, bottom, right = lattice.edges
        nano = facts["style"] == NANO
        origin = 0 if nano else 8
        canvas.rect((origin, left, top, right), _CLUES)
        canvas.rect((top, origin, bottom, left), _CLUES)
        if lattice.line:
            lattice.draw(canvas)
        inset = 0 if nano else 0.08 * lattice.cell
        for (y0, x0, y1, x1), filled in zip(lattice.boxes.tolist(), state, strict=True):
            canvas.rect((y0, x0, y1, x1), PAPER)
            if filled:
                canvas.rect((y0 + inset, x0 + inset, y1 - inset, x1 - inset), _FILLED)
        centres = lattice.centres()
        for side, lines in enumerate(facts["clues"]):
            for k, runs in enumerate(lines):
                y, x = centres[k * lattice.columns if side == 0 else k]
                for back, run in enumerate(reversed(runs)):
                    off = (back + 0.5) * lattice.cell
                    _draw_clue(canvas, run, (y, left - off) if side == 0 else (top - off, x), lattice.cell)

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        n = side_of(facts["given"])
        pushed = ["0".join("1" * run for run in runs).ljust(n, "0") for runs in facts["clues"][0]]
        cells = list(facts["solution"])
        random.shuffle(cells)
        return {"copy of the input": facts["given"], "as many cells at random": cells,
                "each row's runs pushed to the left": [int(cell) for row in pushed for cell in row]}  # fmt: skip

    def breaches(self, facts: Facts, state: State) -> list[str]:
        return [
            f"{name} {k + 1} has other runs"
            for name, seen, wanted in zip(("row", "column"), clues_of(state), facts["clues"], strict=True)
            for k, (runs, right) in enumerate(zip(seen, wanted, strict=True))
            if list(runs) != list(right)
        ]


def _draw_clue(canvas: Canvas, run: int, centre: tuple[float, float], cell: int) -> None:
    if cell > 4:
        canvas.text(centre, str(run), 0.5 * cell)
        return
    top, left = round(centre[0] - 2), round(centre[1] - 2)
    for y, x in _DOTS[:run]:
        canvas.rect((top + y, left + x, top + y + 1, left + x + 1), INK)


def clues_of(cells: Sequence[int]) -> tuple[tuple[Runs, ...], tuple[Runs, ...]]:
    """The runs of each row and of each column."""
    n = side_of(cells)
    rows = [tuple(cells[n * r : n * r + n]) for r in range(n)]
    return tuple(map(_runs, rows)), tuple(map(_runs, zip(*rows, strict=True)))


def _runs(line: Sequence[int]) -> Runs:
    return tuple(len(list(run)) for filled, run in groupby(line) if filled)


@cache
def _lines(n: int) -> dict[Runs, tuple[int, ...]]:
    """Runs -> the lines of n cells that have them, as bits."""
    lines: dict[Runs, tuple[int, ...]] = {}
    for line in product((0, 1), repeat=n):
        bits = sum(cell << k for k, cell in enumerate(line))
        lines[_runs(line)] = (*lines.get(_runs(line), ()), bits)
    return lines


def is_unique(clues: tuple[tuple[Runs, ...], tuple[Runs, ...]]) -> bool:
    """Whether exactly one grid has these clues."""
    solutions = _grids(clues)
    return next(solutions, None) is not None and next(solutions, None) is None


def _grids(clues: tuple[tuple[Runs, ...], tuple[Runs, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """All grids with these clues, each as the lines that are left of rows and columns: narrow, then guess a row."""
    n = len(clues[0])
    lines = [[_lines(n)[runs] for runs in side] for side in clues]

    def search(rows: list[tuple[int, ...]], columns: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
        while True:
            before = sum(map(len, rows)) + sum(map(len, columns))
            for these, others in ((rows, columns), (columns, rows)):
                for k in range(n):
                    on = sum(all(line >> k & 1 for line in other) << j for j, other in enumerate(others))
                    off = sum(all(not line >> k & 1 for line in other) << j for j, other in enumerate(others))
                    these[k] = tuple(line for line in these[k] if line & on == on and not line & off)
                    if not these[k]:
                        return
            if sum(map(len, rows)) + sum(map(len, columns)) == before:
                break
        k = max(range(n), key=lambda row: len(rows[row]))
        if len(rows[k]) == 1:
            yield rows
            return
        for line in rows[k]:
            yield from search([(line,) if row == k else rows[row] for row in range(n)], list(columns))

    yield from search(*lines)
