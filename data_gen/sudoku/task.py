"""Sudoku: fill a grid so that each row, column and box has every digit once; exactly one solution.

Levels 1 to 6 are grids of 4 to 9 cells a side. Those of 5 and 7 have no boxes. Digits are taken away in random order
until half of the cells are empty. One without which there would be two solutions stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from uni_train.data_gen.canvas import PAPER, Canvas
from uni_train.data_gen.puzzle import NANO, Facts, Lattice, LatticePuzzle, Problem, State, side_of
from uni_train.data_gen.registry import scoring_beside, task

BOXES = {4: (2, 2), 5: (1, 5), 6: (2, 3), 7: (1, 7), 8: (2, 4), 9: (3, 3)}  # rows x columns of a box
EMPTY = 0.5  # of the cells, at most
_TINT = (222, 230, 245)  # of every second box


@task("sudoku")
@dataclass(frozen=True)
class Sudoku(LatticePuzzle):
    """Complete a sudoku; rows, columns, boxes and the given digits are checked."""

    name = "sudoku"
    title = "Sudoku"
    sets, variants, chance = scoring_beside(__file__)
    nano_levels = (1, 2, 3)

    def problem(self, random: Random, level: int) -> Problem:
        n = level + 3
        full = next(solutions([0] * n * n, random))
        given = list(full)
        for cell in random.sample(range(n * n), n * n):
            if given.count(0) >= EMPTY * n * n:
                break
            if is_implied(given, cell):
                given[cell] = 0
        boxes = "" if 1 in BOXES[n] else f" and every box of {BOXES[n][0]} x {BOXES[n][1]} cells"
        added = [
            f"row {cell // n + 1} column {cell % n + 1} is {full[cell]}" for cell in range(n * n) if not given[cell]
        ]
        return Problem(
            prompt=f"Complete the sudoku: every row, every column{boxes} has each digit from 1 to {n} once. "
            "Keep the given digits.",
            given=given,
            solution=full,
            canonical=canonical(given),
            thought=f"{', '.join(added).capitalize()}.",
            answer="".join(map(str, full)),
        )

    def lattice(self, facts: Facts) -> Lattice:
        n = side_of(facts["given"])
        return Lattice(n, n, 8) if facts["style"] == NANO else Lattice.centred(n, n)

    def symbols(self, facts: Facts) -> int:
        return side_of(facts["given"]) + 1

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        lattice = self.lattice(facts)
        n, (tall, wide) = lattice.rows, BOXES[lattice.rows]
        for cell, (top, left, bottom, right) in enumerate(lattice.boxes.tolist()):
            tinted = (cell // n // tall + cell % n // wide) % 2
            canvas.rect((top, left, bottom, right), _TINT if tinted else PAPER)
        if lattice.line:
            lattice.draw(canvas, bold=None if 1 in (tall, wide) else (tall, wide))
        height = 5 if facts["style"] == NANO else lattice.cell * 0.55
        for centre, digit in zip(lattice.centres(), state, strict=True):
            if digit:
                canvas.text(centre, str(digit), height)

    def breaches(self, facts: Facts, state: State) -> list[str]:
        n = side_of(state)
        breaches = ["a cell is empty"] if 0 in state else []
        for name, cells in units(n):
            digits = [state[cell] for cell in cells if state[cell]]
            if len(set(digits)) < len(digits):
                breaches.append(f"{name} has a digit twice")
        return breaches


@cache
def units(n: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Names and cells of the rows, columns and boxes of a grid of `n` cells a side."""
    tall, wide = BOXES[n]
    rows = [tuple(n * r + c for c in range(n)) for r in range(n)]
    boxes = [
        tuple(n * (r + y) + c + x for y in range(tall) for x in range(wide))
        for r in range(0, n, tall)
        for c in range(0, n, wide)
    ]
    named = {"row": rows, "column": list(zip(*rows, strict=True)), "box": [] if 1 in (tall, wide) else boxes}
    return tuple((f"{kind} {k + 1}", cells) for kind, some in named.items() for k, cells in enumerate(some))


@cache
def _peers(n: int) -> tuple[tuple[int, ...], ...]:
    """For each cell those that share a row, a column or a box with it."""
    return tuple(
        tuple({other for _, cells in units(n) if cell in cells for other in cells} - {cell}) for cell in range(n * n)
    )


def solutions(grid: Sequence[int], random: Random | None = None) -> Iterator[list[int]]:
    """All completions of a grid (0: empty), those digits first that `random` says."""
    n, cells = side_of(grid), list(grid)
    free = [(1 << n + 1) - 2] * (n * n)  # bits of the digits that a cell may still have
    peers = _peers(n)
    for cell, digit in enumerate(cells):
        for other in peers[cell] if digit else ():
            free[other] &= ~(1 << digit)

    def fill() -> Iterator[list[int]]:
        open_ = [cell for cell in range(n * n) if not cells[cell]]
        if not open_:
            yield list(cells)
            return
        cell = min(open_, key=lambda place: free[place].bit_count())
        digits = [digit for digit in range(1, n + 1) if free[cell] >> digit & 1]
        if random is not None:
            random.shuffle(digits)
        for digit in digits:
            narrowed = [other for other in peers[cell] if not cells[other] and free[other] >> digit & 1]
            cells[cell] = digit
            for other in narrowed:
                free[other] ^= 1 << digit
            yield from fill()
            for other in narrowed:
                free[other] ^= 1 << digit
        cells[cell] = 0

    yield from fill()


def is_implied(grid: Sequence[int], cell: int) -> bool:
    """Whether a grid with exactly one completion still has exactly one without its digit in `cell`."""
    n, cells = side_of(grid), list(grid)
    others = set(range(1, n + 1)) - {grid[peer] for peer in _peers(n)[cell]} - {grid[cell]}
    return not any(any(solutions([*cells[:cell], digit, *cells[cell + 1 :]])) for digit in others)


def canonical(grid: Sequence[int]) -> str:
    """Equal for grids that are one another with other digits, mirrored in their diagonal or turned by 180 degrees."""
    n = side_of(grid)
    flipped = [grid[n * c + r] for r in range(n) for c in range(n)] if BOXES[n][0] == BOXES[n][1] else grid
    views = [list(grid), list(grid)[::-1], list(flipped), list(flipped)[::-1]]
    return min("".join(map(str, _renamed(view))) for view in views)


def _renamed(view: Sequence[int]) -> list[int]:
    """Digits in the order in which they come."""
    names = {0: 0}
    return [names.setdefault(digit, len(names)) for digit in view]
