"""n queens: complete a board so that no queen attacks another; exactly one completion.

Boards have 8 x 8 squares. On level 1 two queens are missing, on level 2 four, on level 3 as many as leave one
completion. Level 4 is such a board of 10 x 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from uni_train.core.seeds import digest
from uni_train.data_gen.canvas import INK, RED, Canvas
from uni_train.data_gen.puzzle import NANO, Facts, Lattice, LatticePuzzle, Problem, State, least_view, side_of
from uni_train.data_gen.registry import scoring_beside, task

MISSING = {1: (8, 2), 2: (8, 4), 3: (8, 8), 4: (10, 10)}  # level -> side, missing queens at most
_LIGHT, _DARK = (240, 225, 195), (175, 135, 100)


@task("queens")
@dataclass(frozen=True)
class Queens(LatticePuzzle):
    """Place the missing queens; their number, attacks and the given queens are checked."""

    name = "queens"
    title = "Queens"
    sets, variants, chance = scoring_beside(__file__)
    nano_levels = (1, 2, 3)
    lazy_ways = ("copy of the input", "free rows and columns, in any order")

    def problem(self, random: Random, level: int) -> Problem:
        n, missing = MISSING[level]
        columns = random.choice(placements(n))
        rows = random.sample(range(n), n)  # given first
        fewest = next(
            k for k in range(n + 1)
            if sum(all(other[r] == columns[r] for r in rows[:k]) for other in placements(n)) == 1
        )  # fmt: skip
        given_rows = set(rows[: max(fewest, n - missing)])
        added = [r for r in range(n) if r not in given_rows]
        if not added:
            return self.problem(random, level)
        given = _board(n, {r: columns[r] for r in given_rows})
        spelled = ", ".join(f"row {r + 1} column {columns[r] + 1}" for r in added)
        return Problem(
            prompt=f"Place the missing queens, so that {n} queens stand on the board and no two share a row, a column "
            "or a diagonal. Keep the given queens.",
            given=given,
            solution=_board(n, dict(enumerate(columns))),
            canonical=digest(n, *map(str, least_view(given))),
            thought=f"The missing queens stand in {spelled}.",
            answer=spelled,
        )

    def lattice(self, facts: Facts) -> Lattice:
        n = side_of(facts["given"])
        return Lattice(n, n, 4) if facts["style"] == NANO else Lattice.centred(n, n, line=0)

    def symbols(self, facts: Facts) -> int:
        return 2

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        lattice = self.lattice(facts)
        for cell, (box, queen) in enumerate(zip(lattice.boxes.tolist(), state, strict=True)):
            y, x = divmod(cell, lattice.columns)
            canvas.rect(box, _DARK if (y + x) % 2 else _LIGHT)
            if queen:
                _draw_queen(canvas, *box)
        top, left, bottom, right = lattice.edges
        if facts["style"] != NANO:
            canvas.frame((top - 3, left - 3, bottom + 3, right + 3), 3, INK)

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        given = facts["given"]
        n = side_of(given)
        taken = [divmod(cell, n) for cell, queen in enumerate(given) if queen]
        rows, columns = ([k for k in range(n) if k not in some] for some in zip(*taken, strict=True))
        random.shuffle(columns)
        placed = dict([*taken, *zip(rows, columns, strict=True)])
        return {"copy of the input": given, "free rows and columns, in any order": _board(n, placed)}

    def breaches(self, facts: Facts, state: State) -> list[str]:
        n = side_of(state)
        queens = [divmod(cell, n) for cell, queen in enumerate(state) if queen]
        lines = {
            "row": [y for y, _ in queens], "column": [x for _, x in queens],
            "diagonal": [y - x for y, x in queens], "other diagonal": [y + x for y, x in queens],
        }  # fmt: skip
        breaches = [f"two queens share a {name}" for name, values in lines.items() if len(set(values)) < len(values)]
        return breaches if len(queens) == n else [f"{len(queens)} queens stand on the board", *breaches]


def _draw_queen(canvas: Canvas, top: int, left: int, bottom: int, right: int) -> None:
    side = bottom - top
    if side <= 4:
        canvas.rect((top + 1, left + 1, bottom - 1, right - 1), INK)
        return
    y, x = (top + bottom) / 2, (left + right) / 2
    canvas.polygon([(top + 0.75 * side, x - 0.26 * side), (top + 0.75 * side, x + 0.26 * side),
                    (top + 0.25 * side, x + 0.34 * side), (top + 0.25 * side, x - 0.34 * side)], INK)  # fmt: skip
    for k in (-1, 0, 1):  # the notches of a crown
        canvas.disc((top + 0.22 * side, x + 0.3 * k * side), 0.09 * side, INK)
    canvas.disc((y + 0.05 * side, x), 0.12 * side, RED)


@cache
def placements(n: int) -> tuple[tuple[int, ...], ...]:
    """All ways to place n queens: the column of each row."""
    placed: list[tuple[int, ...]] = [()]
    for r in range(n):
        placed = [
            (*some, c)
            for some in placed
            for c in range(n)
            if all(c != other and abs(c - other) != r - row for row, other in enumerate(some))
        ]
    return tuple(placed)


def _board(n: int, columns: dict[int, int]) -> list[int]:
    return [int(columns.get(cell // n) == cell % n) for cell in range(n * n)]
