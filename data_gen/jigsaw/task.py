"""Jigsaw: put square pieces in order so that edges that touch have one colour; exactly one solution.

Each piece is four triangles, one an edge. The piece at the upper left is in its place. Levels: 1 has 2 x 2 and 2 has
3 x 3 pieces that are not turned; 3 and 4 are the same with pieces that may be turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from uni_train.data_gen.canvas import PALETTE, Canvas, colours_at
from uni_train.data_gen.puzzle import NANO, UNITS, Facts, Lattice, Problem, Puzzle, State, side_of
from uni_train.data_gen.registry import scoring_beside, task

PIECES = {1: (2, False), 2: (3, False), 3: (2, True), 4: (3, True)}  # level -> pieces a side, whether they are turned
Piece = tuple[int, int, int, int]  # colours of the upper, right, lower and left edge


@task("jigsaw")
@dataclass(frozen=True)
class Jigsaw(Puzzle):
    """Order (and turn) pieces by their edges; the pieces, edges that touch, and the order are checked."""

    name = "jigsaw"
    title = "Jigsaws"
    sets, variants, chance = scoring_beside(__file__)
    lazy_ways = ("copy of the input", "any order")

    def problem(self, random: Random, level: int) -> Problem:
        n, turns = PIECES[level]
        while True:
            solved = _random_pieces(random, n)
            shuffled = [solved[0], *random.sample(solved[1:], n * n - 1)]
            if turns:
                shuffled[1:] = [turned(piece, random.randrange(4)) for piece in shuffled[1:]]
            fits = arrangements(shuffled, n, turns)
            if shuffled != solved and next(fits) and next(fits, None) is None:
                break
        places = ", ".join(_place(shuffled, piece, n) for piece in solved)
        return Problem(
            prompt="Put the pieces in order, so that edges that touch have the same colour. "
            + ("Pieces may be turned. " if turns else "No piece is turned. ")
            + "The piece at the upper left is in its place.",
            given=[colour for piece in shuffled for colour in piece],
            solution=[colour for piece in solved for colour in piece],
            canonical=_canonical(solved),
            thought=f"In reading order come the pieces that were at {places}.",
            answer=places,
            facts={"turns": turns},
        )

    def lattice(self, facts: Facts) -> Lattice:
        n = side_of(pieces_of(facts["given"]))
        return Lattice(n, n, 12) if facts["style"] == NANO else Lattice.centred(n, n, line=3)

    def size(self, facts: Facts) -> tuple[int, int]:
        return self.lattice(facts).edges[2:] if facts["style"] == NANO else (UNITS, UNITS)

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        lattice, nano = self.lattice(facts), facts["style"] == NANO
        if lattice.line:
            lattice.draw(canvas)
        for k, (top, left, bottom, right) in enumerate(lattice.boxes.tolist()):
            colours = [PALETTE[colour] for colour in state[4 * k : 4 * k + 4]]
            if nano:  # four bars around a middle
                middle = (top + 4, left + 4, bottom - 4, right - 4)
                bars = ((top, middle[1], middle[0], middle[3]), (middle[0], middle[3], middle[2], right),
                        (middle[2], middle[1], bottom, middle[3]), (middle[0], left, middle[2], middle[1]))  # fmt: skip
                for bar, colour in zip(bars, colours, strict=True):
                    canvas.rect(bar, colour)
                continue
            y, x = (top + bottom) / 2, (left + right) / 2
            corners = [(top, left), (top, right), (bottom, right), (bottom, left)]
            for edge, colour in enumerate(colours):
                canvas.polygon([corners[edge], corners[(edge + 1) % 4], (y, x)], colour)

    def read(self, facts: Facts, image: np.ndarray) -> Sequence[int]:
        lattice = self.lattice(facts)
        far, half = (4, 1) if facts["style"] == NANO else (round(0.36 * lattice.cell), round(0.06 * lattice.cell))
        ways = ((-far, 0), (0, far), (far, 0), (0, -far))
        spots = [(y + dy, x + dx) for y, x in lattice.centres() for dy, dx in ways]
        boxes = np.array([(y - half, x - half, y + half, x + half) for y, x in spots])
        return colours_at(image, np.rint(boxes).astype(int), PALETTE).tolist()

    def kept(self, facts: Facts, state: State) -> bool:
        return tuple(state[:4]) == tuple(facts["given"][:4])

    def breaches(self, facts: Facts, state: State) -> list[str]:
        pieces, given = pieces_of(state), pieces_of(facts["given"])
        n, same = side_of(pieces), smallest if facts["turns"] else tuple
        breaches = (
            [] if sorted(map(same, pieces)) == sorted(map(same, given)) else ["a piece is missing, new or turned"]
        )
        touching = [(k, k + 1, 1, 3) for k in range(n * n) if (k + 1) % n] + [
            (k, k + n, 2, 0) for k in range(n * n - n)
        ]
        if any(pieces[a][edge] != pieces[b][other] for a, b, edge, other in touching):
            breaches.append("edges that touch have two colours")
        return breaches

    def steps(self, facts: Facts) -> Iterator[Sequence[int]]:
        pieces, solved = pieces_of(facts["given"]), pieces_of(facts["solution"])
        yield facts["given"]
        for k in range(len(pieces)):
            if pieces[k] != solved[k]:
                other = next(j for j in range(k, len(pieces)) if smallest(pieces[j]) == smallest(solved[k]))
                pieces[other], pieces[k] = pieces[k], solved[k]
                yield [colour for piece in pieces for colour in piece]

    def progress(self, facts: Facts, state: State) -> float:
        """The share of places with their piece, above that of the given order."""
        solved = pieces_of(facts["solution"])
        right, first = (
            sum(a == b for a, b in zip(pieces_of(drawing), solved, strict=True)) for drawing in (state, facts["given"])
        )
        return max(0, right - first) / (len(solved) - first)

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        first, *others = pieces_of(facts["given"])
        random.shuffle(others)
        turns = [random.randrange(4) if facts["turns"] else 0 for _ in others]
        guess = [first, *map(turned, others, turns)]
        return {"copy of the input": facts["given"], "any order": [colour for piece in guess for colour in piece]}


def pieces_of(state: Sequence[int]) -> list[Piece]:
    return [(state[k], state[k + 1], state[k + 2], state[k + 3]) for k in range(0, len(state), 4)]


def turned(piece: Sequence[int], quarters: int) -> Piece:
    """A piece after so many quarter turns to the right."""
    a, b, c, d = (piece[(edge - quarters) % 4] for edge in range(4))
    return a, b, c, d


def smallest(piece: Sequence[int]) -> Piece:
    """Equal for pieces that are one another turned."""
    return min(turned(piece, quarters) for quarters in range(4))


def _random_pieces(random: Random, n: int) -> list[Piece]:
    across = [[random.randrange(len(PALETTE)) for _ in range(n + 1)] for _ in range(n)]
    down = [[random.randrange(len(PALETTE)) for _ in range(n)] for _ in range(n + 1)]
    return [(down[r][c], across[r][c + 1], down[r + 1][c], across[r][c]) for r in range(n) for c in range(n)]


def arrangements(pieces: Sequence[Piece], n: int, turns: bool) -> Iterator[list[Piece]]:
    """All orders of the pieces whose edges match, the first piece in its place; equal pieces are one."""

    views = [sorted({turned(piece, quarters) for quarters in range(4 if turns else 1)}) for piece in pieces]

    def place(laid: list[Piece], rest: list[int]) -> Iterator[list[Piece]]:
        if not rest:
            yield list(laid)
        k = len(laid)
        left = laid[k - 1][1] if k % n else None
        above = laid[k - n][2] if k >= n else None
        tried = set()
        for piece in rest:
            for view in views[piece]:
                if left in (None, view[3]) and above in (None, view[0]) and view not in tried:
                    tried.add(view)
                    yield from place([*laid, view], [other for other in rest if other != piece])

    yield from place([pieces[0]], list(range(1, n * n)))


def _place(shuffled: Sequence[Piece], piece: Piece, n: int) -> str:
    k = next(j for j, other in enumerate(shuffled) if smallest(other) == smallest(piece))
    return f"row {k // n + 1} column {k % n + 1}"


def _canonical(pieces: Sequence[Piece]) -> str:
    """Equal for pieces of the same pattern in other colours."""
    names: dict[int, int] = {}
    return "".join(str(names.setdefault(colour, len(names))) for piece in pieces for colour in piece)
