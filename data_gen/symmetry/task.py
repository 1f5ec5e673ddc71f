"""Symmetry: complete a coloured pattern that is shown in part.

Levels: 1 mirrored left to right; 2 mirrored top to bottom; 3 turned by half a turn; 4 mirrored both ways; 5 repeated in
squares of half the side. What is shown decides everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from uni_train.data_gen.canvas import PALETTE, PAPER, Canvas
from uni_train.data_gen.puzzle import NANO, Facts, Lattice, LatticePuzzle, Problem, State
from uni_train.data_gen.registry import scoring_beside, task

SIDE, PERIOD = 6, 3  # cells
_LAST = SIDE - 1
_RULES = {
    1: ("is the mirror image of its left half in its right half", "the left half", lambda r, c: (r, min(c, _LAST - c))),
    2: ("is the mirror image of its upper half in its lower half", "the upper half",
        lambda r, c: (min(r, _LAST - r), c)),
    3: ("stays the same when turned by 180 degrees", "the upper half",
        lambda r, c: (r, c) if r < SIDE // 2 else (_LAST - r, _LAST - c)),
    4: ("is symmetric left to right and top to bottom", "the upper left quarter",
        lambda r, c: (min(r, _LAST - r), min(c, _LAST - c))),
    5: (f"repeats a square of {PERIOD} x {PERIOD} cells", "the first square", lambda r, c: (r % PERIOD, c % PERIOD)),
}  # fmt: skip


@task("symmetry")
@dataclass(frozen=True)
class Symmetry(LatticePuzzle):
    """Complete a pattern by its symmetry; every cell and the given part are checked."""

    name = "symmetry"
    title = "Symmetry"
    sets, variants, chance = scoring_beside(__file__)

    def problem(self, random: Random, level: int) -> Problem:
        rule, shown, source = _RULES[level]
        colours = random.sample(range(1, len(PALETTE) + 1), random.randint(3, len(PALETTE)))
        cells = [divmod(cell, SIDE) for cell in range(SIDE * SIDE)]
        given = [random.choice(colours) if source(r, c) == (r, c) else 0 for r, c in cells]
        solution = [given[SIDE * y + x] for y, x in (source(r, c) for r, c in cells)]
        rows = " / ".join("".join(map(str, solution[SIDE * r : SIDE * r + SIDE])) for r in range(SIDE))
        names: dict[int, int] = {0: 0}
        return Problem(
            prompt=f"Complete the pattern, which {rule}. Keep {shown}.",
            given=given,
            solution=solution,
            canonical=f"{level}:" + "".join(str(names.setdefault(colour, len(names))) for colour in given),
            thought=f"Each empty cell takes the colour of its image. The rows are {rows}.",
            answer=rows,
        )

    def lattice(self, facts: Facts) -> Lattice:
        return Lattice(SIDE, SIDE, 4) if facts["style"] == NANO else Lattice.centred(SIDE, SIDE)

    def symbols(self, facts: Facts) -> int:
        return len(PALETTE) + 1

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        lattice = self.lattice(facts)
        if lattice.line:
            lattice.draw(canvas)
        for box, colour in zip(lattice.boxes.tolist(), state, strict=True):
            canvas.rect(box, PALETTE[colour - 1] if colour else PAPER)

    def breaches(self, facts: Facts, state: State) -> list[str]:
        return ["a cell is empty"] if 0 in state else []
