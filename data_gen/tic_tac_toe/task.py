"""Tic-tac-toe: draw the only best move of X.

Level 1 wins at once on 3 x 3. Level 2 is best by search there, but does not win at once. Levels 3 and 4 win or stop a
win by four in a line. Their boards are 4 x 4 and 5 x 5. No other move is as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from uni_train.data_gen.canvas import BLUE, PAPER, RED, Canvas
from uni_train.data_gen.puzzle import NANO, Facts, Lattice, LatticePuzzle, Problem, State, least_view, side_of
from uni_train.data_gen.registry import scoring_beside, task

X, O = 1, 2  # noqa: E741
BOARDS = {1: (3, 3), 2: (3, 3), 3: (4, 4), 4: (5, 4)}  # level -> side, cells in a line that win
_TINT = (212, 212, 226)


@task("tic_tac_toe")
@dataclass(frozen=True)
class TicTacToe(LatticePuzzle):
    """Draw the best move of X; one new X and all others kept are checked, then the move."""

    name = "tic_tac_toe"
    title = "Tic-tac-toe"
    sets, variants, chance = scoring_beside(__file__)
    lazy_ways = ("copy of the input", "any empty cell", "first empty cell", "where most X are in line")
    guess = "any empty cell"

    def problem(self, random: Random, level: int) -> Problem:
        n, k = BOARDS[level]
        while True:
            pairs = random.randint(2 if n == 3 else n, 3 if n == 3 else (n * n - 2) // 2)
            taken = random.sample(range(n * n), 2 * pairs)
            board = tuple(X if cell in taken[:pairs] else O if cell in taken else 0 for cell in range(n * n))
            move = best_move(board, n, k, level)
            if move is not None:
                break
        wins = has_line(_put(board, move, X), n, k, X)
        why = (
            "wins at once"
            if wins
            else "stops O"
            if has_line(_put(board, move, O), n, k, O)
            else "is the best by search"
        )
        return Problem(
            prompt=f"It is the turn of X, and {k} in a line win (row, column or diagonal). Draw the best move: one X "
            "in an empty cell.",
            given=board,
            solution=_put(board, move, X),
            canonical="/".join("".join(map(str, row)) for row in least_view(board)),
            thought=f"X in row {move // n + 1} column {move % n + 1} {why}.",
            answer=f"row {move // n + 1} column {move % n + 1}",
        )

    def lattice(self, facts: Facts) -> Lattice:
        n = side_of(facts["given"])
        return Lattice(n, n, 8) if facts["style"] == NANO else Lattice.centred(n, n, line=3)

    def symbols(self, facts: Facts) -> int:
        return 3

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        lattice, nano = self.lattice(facts), facts["style"] == NANO
        if lattice.line:
            lattice.draw(canvas)
        inset = 1.5 if nano else 0.2 * lattice.cell
        for cell, (box, sign) in enumerate(zip(lattice.boxes.tolist(), state, strict=True)):
            canvas.rect(box, _TINT if nano and (cell // lattice.rows + cell % lattice.rows) % 2 else PAPER)
            top, left, bottom, right = (edge + sign_ * inset for edge, sign_ in zip(box, (1, 1, -1, -1), strict=True))
            if sign == X:
                width = 1 if nano else 0.1 * lattice.cell
                canvas.line([(top, left), (bottom, right)], width, RED)
                canvas.line([(top, right), (bottom, left)], width, RED)
            elif sign == O and nano:
                canvas.frame((top - 0.5, left - 0.5, bottom + 0.5, right + 0.5), 1, BLUE)
            elif sign == O:
                canvas.ring(((top + bottom) / 2, (left + right) / 2), (bottom - top) / 2, 0.1 * lattice.cell, BLUE)

    def breaches(self, facts: Facts, state: State) -> list[str]:
        new = [now for now, old in zip(state, facts["given"], strict=True) if not old and now]
        return [] if new == [X] else [f"{new.count(X)} X and {new.count(O)} O are new, not one X"]

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        given = tuple(facts["given"])
        empty = [cell for cell, sign in enumerate(given) if not sign]
        beside = max(empty, key=lambda cell: sum(given[other] == X for line in _lines(*_size(given)) if cell in line
                                                 for other in line))  # fmt: skip
        return {
            "copy of the input": given,
            "any empty cell": _put(given, random.choice(empty), X),
            "first empty cell": _put(given, empty[0], X),
            "where most X are in line": _put(given, beside, X),
        }


def _size(board: Sequence[int]) -> tuple[int, int]:
    n = side_of(board)
    return n, min(n, 4)


@cache
def _lines(n: int, k: int) -> tuple[tuple[int, ...], ...]:
    """Cells of all lines of `k` on a board of `n` cells a side."""
    lines = []
    for r in range(n):
        for c in range(n):
            for y, x in ((0, 1), (1, 0), (1, 1), (1, -1)):
                if 0 <= r + (k - 1) * y < n and 0 <= c + (k - 1) * x < n:
                    lines.append(tuple(n * (r + i * y) + c + i * x for i in range(k)))
    return tuple(lines)


def has_line(board: Sequence[int], n: int, k: int, sign: int) -> bool:
    return any(all(board[cell] == sign for cell in line) for line in _lines(n, k))


def _put(board: Sequence[int], cell: int, sign: int) -> tuple[int, ...]:
    return (*board[:cell], sign, *board[cell + 1 :])


def best_move(board: tuple[int, ...], n: int, k: int, level: int) -> int | None:
    """The one best move of X as a level wants it; None where there is none, several, or the game is over."""
    if has_line(board, n, k, X) or has_line(board, n, k, O):
        return None
    empty = [cell for cell, sign in enumerate(board) if not sign]
    winning, losing = ([cell for cell in empty if has_line(_put(board, cell, sign), n, k, sign)] for sign in (X, O))
    if level == 2:
        values = [-value(_put(board, cell, X), O) for cell in empty]
        best = [cell for cell, worth in zip(empty, values, strict=True) if worth == max(values)]
        return best[0] if len(best) == 1 < len(empty) and not winning else None
    decisive = winning if winning or level == 1 else losing
    return decisive[0] if len(decisive) == 1 else None


@cache
def value(board: tuple[int, ...], turn: int) -> int:
    """Of a 3 x 3 board for the player to move: 1 won, 0 drawn, -1 lost under best play."""
    other = X + O - turn
    if has_line(board, 3, 3, other):
        return -1
    moves = [-value(_put(board, cell, turn), other) for cell, sign in enumerate(board) if not sign]
    return max(moves, default=0)
