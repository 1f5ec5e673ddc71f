"""Towers of Hanoi: the pegs after the first moves of the shortest solution, which is the only one.

A level is how many moves are drawn. Levels 1 to 4 have five discs, level 5 has six. Discs lie on any pegs at first; all
have to come to the peg on a green base. Their widths vary, except in the style nano.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from uni_train.data_gen.canvas import GREEN, INK, PALETTE, Canvas
from uni_train.data_gen.puzzle import NANO, UNITS, CellPuzzle, Facts, Problem, State
from uni_train.data_gen.registry import scoring_beside, task

DISCS = {1: 5, 2: 5, 3: 5, 4: 5, 5: 6}
WIDTHS = 8  # of discs
PEGS = ("left", "middle", "right")
_SLOT, _BASE = 22, 220  # units: height of a disc, where the bases begin
_WOOD = (150, 120, 90)


@task("hanoi")
@dataclass(frozen=True)
class Hanoi(CellPuzzle):
    """Make the first moves of a tower; the discs, their order on each peg, and the moves are checked."""

    name = "hanoi"
    title = "Towers of Hanoi"
    sets, variants, chance = scoring_beside(__file__)
    in_order = True
    lazy_ways = ("copy of the input", "any legal move", "a legal move to the green base")

    def problem(self, random: Random, level: int) -> Problem:
        n = DISCS[level]
        widths = range(1, n + 1) if self.style == NANO else sorted(random.sample(range(1, WIDTHS + 1), n))
        while True:
            pegs, goal = tuple(random.randrange(3) for _ in range(n)), random.randrange(3)
            moves = solution(pegs, goal)
            if len(moves) >= level:
                break
        moves, after = moves[:level], list(pegs)
        for disc, _, to in moves:
            after[disc] = to
        spelled = ", then ".join(f"from the {PEGS[a]} to the {PEGS[b]} peg" for _, a, b in moves)
        many = "first move" if level == 1 else f"first {level} moves"
        facing = min((pegs, goal), (tuple(2 - peg for peg in pegs), 2 - goal))
        return Problem(
            prompt="Bring all discs to the peg on the green base in as few moves as possible. A move takes the upper "
            f"disc of a peg to another peg, and never onto a smaller disc. Draw the pegs after the {many}.",
            given=_stacked(pegs, widths),
            solution=_stacked(after, widths),
            canonical=f"{level}:{''.join(map(str, facing[0]))}:{facing[1]}",
            thought=f"The shortest solution moves a disc {spelled}.",
            answer=spelled,
            facts={"goal": goal, "moves": [[a, b] for _, a, b in moves]},
        )

    def moves(self, facts: Facts) -> list[str]:
        return [f"From the {PEGS[a]} to the {PEGS[b]} peg" for a, b in facts["moves"]]

    def move_phrases(self) -> tuple[str, ...]:
        """Every move between two pegs."""
        return tuple(f"From the {a} to the {b} peg" for a in PEGS for b in PEGS if a != b)

    def size(self, facts: Facts) -> tuple[int, int]:
        return (4 * (len(facts["given"]) // 3) + 4, 36) if facts["style"] == NANO else (UNITS, UNITS)

    def cells(self, facts: Facts) -> np.ndarray:
        slots = len(facts["given"]) // 3
        high, wide, base, edge = (4, 12, 4 * slots, 0) if facts["style"] == NANO else (_SLOT, 80, _BASE, 8)
        peg, slot = np.divmod(np.arange(3 * slots), slots)
        top, left = base - (slot + 1) * high, edge + peg * wide
        return np.stack([top, left, top + high, left + wide], axis=1)

    def symbols(self, facts: Facts) -> int:
        return (len(facts["given"]) // 3 if facts["style"] == NANO else WIDTHS) + 1

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        cells, slots = self.cells(facts).tolist(), len(state) // 3
        nano = facts["style"] == NANO
        for (top, left, bottom, right), width in zip(cells, state, strict=True):
            middle = (left + right) / 2
            canvas.rect((top, middle - (1 if nano else 3), bottom, middle + (1 if nano else 3)), _WOOD)
            if width:
                half = width if nano else 3 + 4 * width
                inset = 0 if nano else 1
                canvas.rect((top + inset, middle - half, bottom - inset, middle + half), PALETTE[width % len(PALETTE)])
        for peg in range(3):
            _, left, bottom, right = cells[peg * slots]
            inset = 0 if nano else 2
            canvas.rect(
                (bottom, left + inset, bottom + (4 if nano else 12), right - inset),
                GREEN if peg == facts["goal"] else INK,
            )

    def kept(self, facts: Facts, state: State) -> bool:
        return True  # discs are kept by a rule

    def breaches(self, facts: Facts, state: State) -> list[str]:
        slots = len(state) // 3
        breaches = [] if sorted(state) == sorted(facts["given"]) else ["the discs are not those that were given"]
        for peg in range(3):
            discs = state[peg * slots : (peg + 1) * slots]
            lying = [disc for disc in discs if disc]
            if list(discs[: len(lying)]) != lying:
                breaches.append(f"a disc hangs over the {PEGS[peg]} peg")
            if lying != sorted(lying, reverse=True):
                breaches.append(f"a disc lies on a smaller one on the {PEGS[peg]} peg")
        return breaches

    def steps(self, facts: Facts) -> Iterator[Sequence[int]]:
        yield facts["given"]
        state = list(facts["given"])
        for move in facts["moves"]:
            state = move_disc(state, *move)
            yield state

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        given = list(facts["given"])
        legal = [move_disc(given, a, b) for a in range(3) for b in range(3) if can_move(given, a, b)]
        goal = [move_disc(given, a, facts["goal"]) for a in range(3) if can_move(given, a, facts["goal"])]
        return {"copy of the input": given, "any legal move": random.choice(legal),
                "a legal move to the green base": random.choice(goal or [given])}  # fmt: skip


def solution(pegs: Sequence[int], goal: int) -> list[tuple[int, int, int]]:
    """The shortest way to bring all discs to one peg: (disc, from, to) of each move; discs from small to large.

    From any position there is one such way (Hinz et al. 2013, The Tower of Hanoi, theorem 2.7).
    """
    if not pegs:
        return []
    largest = len(pegs) - 1
    if pegs[largest] == goal:
        return solution(pegs[:largest], goal)
    spare = 3 - pegs[largest] - goal
    return [
        *solution(pegs[:largest], spare),
        (largest, pegs[largest], goal),
        *solution([spare] * largest, goal),
    ]


def _stacked(pegs: Sequence[int], widths: Sequence[int]) -> list[int]:
    """The width of the disc in each slot of each peg, from the base upward; 0: none."""
    state = []
    for peg in range(3):
        discs = [width for width, at in zip(widths, pegs, strict=True) if at == peg][::-1]
        state += [*discs, *[0] * (len(pegs) - len(discs))]
    return state


def _top(state: Sequence[int], peg: int) -> int | None:
    """The slot of the upper disc of a peg."""
    slots = len(state) // 3
    return next((slot for slot in reversed(range(peg * slots, (peg + 1) * slots)) if state[slot]), None)


def can_move(state: Sequence[int], a: int, b: int) -> bool:
    """Whether the upper disc of peg `a` may go to peg `b`."""
    here, there = _top(state, a), _top(state, b)
    return a != b and here is not None and (there is None or state[here] < state[there])


def move_disc(state: Sequence[int], a: int, b: int) -> list[int]:
    """The pegs after the upper disc of `a` has gone to `b`."""
    moved, here, there = list(state), _top(state, a), _top(state, b)
    assert here is not None
    slot = b * (len(state) // 3) if there is None else there + 1
    moved[here], moved[slot] = 0, state[here]
    return moved
