"""Sliding puzzle: the board after some tiles were slid into the gap.

Levels 1 to 3 slide 2, 4 and 6 tiles of eight, level 4 slides 6 of fifteen. The prompt names the tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from uni_train.data_gen.canvas import Canvas
from uni_train.data_gen.puzzle import NANO, Facts, Lattice, LatticePuzzle, Problem, State, side_of
from uni_train.data_gen.registry import scoring_beside, task

SLIDES = {1: (3, 2), 2: (3, 4), 3: (3, 6), 4: (4, 6)}  # level -> tiles a side, slides
_TILE, _SECOND, _GAP = (250, 225, 170), (200, 225, 250), (70, 75, 90)


@task("sliding_puzzle")
@dataclass(frozen=True)
class SlidingPuzzle(LatticePuzzle):
    """Slide tiles into the gap; that each tile is there once, and where, is checked."""

    name = "sliding_puzzle"
    title = "Sliding puzzles"
    sets, variants, chance = scoring_beside(__file__)
    in_order = True
    lazy_ways = ("copy of the input", "the first slide alone", "as many slides at random")

    def problem(self, random: Random, level: int) -> Problem:
        n, many = SLIDES[level]
        given = random.sample(range(n * n), n * n)
        tiles: list[int] = []
        board = list(given)
        while len(tiles) < many:
            last = tiles[-1:]
            tiles.append(random.choice([board[cell] for cell in beside_gap(board) if [board[cell]] != last]))
            board = slide(board, tiles[-1])
        named = ", ".join(map(str, tiles))
        rows = " / ".join(" ".join(str(tile or "_") for tile in board[n * r : n * r + n]) for r in range(n))
        return Problem(
            prompt=f"Slide these tiles into the gap, one after the other: {named}. Draw the board afterwards.",
            given=given,
            solution=board,
            canonical=f"{given}:{tiles}",
            thought=f"Each tile changes places with the gap. The rows are then {rows}.",
            answer=rows,
            facts={"tiles": tiles},
        )

    def lattice(self, facts: Facts) -> Lattice:
        n = side_of(facts["given"])
        return Lattice(n, n, 8) if facts["style"] == NANO else Lattice.centred(n, n, line=3)

    def symbols(self, facts: Facts) -> int:
        return len(facts["given"])

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        lattice, nano = self.lattice(facts), facts["style"] == NANO
        if lattice.line:
            lattice.draw(canvas)
        for box, centre, tile in zip(lattice.boxes.tolist(), lattice.centres(), state, strict=True):
            canvas.rect(box, (_TILE if tile % 2 else _SECOND) if tile else _GAP)
            if tile:
                canvas.text(centre, str(tile), 5 if nano else 0.45 * lattice.cell)

    def kept(self, facts: Facts, state: State) -> bool:
        return True  # tiles are kept by the rule

    def breaches(self, facts: Facts, state: State) -> list[str]:
        return [] if sorted(state) == list(range(len(state))) else ["a tile is missing or there twice"]

    def moves(self, facts: Facts) -> list[str]:
        return [f"Slide {tile}" for tile in facts["tiles"]]

    def move_phrases(self) -> tuple[str, ...]:
        """A slide of each tile of the largest board."""
        return tuple(f"Slide {tile}" for tile in range(1, 16))

    def prompts(self) -> tuple[str, ...]:
        """The parts of its prompts, between signs of punctuation."""
        tiles = map(str, range(1, 16))
        return ("Slide these tiles into the gap", "one after the other", *tiles, "Draw the board afterwards")

    def steps(self, facts: Facts) -> Iterator[Sequence[int]]:
        board = list(facts["given"])
        yield board
        for tile in facts["tiles"]:
            board = slide(board, tile)
            yield board

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        given, tiles = facts["given"], facts["tiles"]
        board = list(given)
        for _ in tiles:
            board = slide(board, board[random.choice(beside_gap(board))])
        return {
            "copy of the input": given,
            "the first slide alone": slide(given, tiles[0]),
            "as many slides at random": board,
        }


def beside_gap(board: Sequence[int]) -> list[int]:
    """Cells beside the gap."""
    n = side_of(board)
    y, x = divmod(list(board).index(0), n)
    return [n * r + c for r, c in ((y - 1, x), (y, x - 1), (y, x + 1), (y + 1, x)) if 0 <= r < n and 0 <= c < n]


def slide(board: Sequence[int], tile: int) -> list[int]:
    """The board after a tile has changed places with the gap."""
    return [tile if square == 0 else 0 if square == tile else square for square in board]
