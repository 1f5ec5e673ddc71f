"""Solvers of puzzles that share no code with their generators: is the label of an item the only right answer?

`SOLVERS` has one function a family: of an item, the solution as its state, or None where there is none or several.
They work from the prompt and the given state. What the picture alone shows (edges, clues, the base) is a fact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np

from uni_train.data_gen.task import Item

State = list[int]


def only(found: Iterator[State]) -> State | None:
    """The first, if there is no second."""
    first = next(found, None)
    return first if first is not None and next(found, None) is None else None


def sudoku(item: Item) -> State | None:
    """Exact cover (Knuth 2000, Dancing Links, Algorithm X), with sets."""
    given = item.facts["given"]
    n = round(len(given) ** 0.5)
    found = re.search(r"box of (\d) x (\d)", item.prompt)
    tall, wide = (int(found[1]), int(found[2])) if found else (1, n)
    rows: dict[tuple[int, int, int], list[tuple[Any, ...]]] = {}
    for r, c, digit in product(range(n), range(n), range(1, n + 1)):
        if given[n * r + c] in (0, digit):
            box = (r // tall, c // wide)
            rows[r, c, digit] = [("cell", r, c), ("row", r, digit), ("column", c, digit), ("box", box, digit)]
    columns: dict[tuple[Any, ...], set[tuple[int, int, int]]] = {}
    for choice, covered in rows.items():
        for column in covered:
            columns.setdefault(column, set()).add(choice)

    def covers(chosen: list[tuple[int, int, int]]) -> Iterator[State]:
        if not columns:
            cells = [0] * (n * n)
            for r, c, digit in chosen:
                cells[n * r + c] = digit
            yield cells
            return
        column = min(columns, key=lambda one: len(columns[one]))
        for choice in list(columns[column]):
            removed = []
            for covered in rows[choice]:
                for other in columns[covered]:
                    for elsewhere in rows[other]:
                        if elsewhere != covered:
                            columns[elsewhere].discard(other)
                removed.append(columns.pop(covered))
            yield from covers([*chosen, choice])
            for covered in reversed(rows[choice]):
                columns[covered] = removed.pop()
                for other in columns[covered]:
                    for elsewhere in rows[other]:
                        if elsewhere != covered:
                            columns[elsewhere].add(other)

    return only(covers([]))


@cache
def _all_queens(n: int) -> np.ndarray:
    """Every placement, by going through all permutations; int [solutions, n]."""
    placed: list[np.ndarray] = []
    for first in range(n):
        rest = np.array(list(permutations([c for c in range(n) if c != first])), dtype=np.int8)
        boards = np.concatenate([np.full((len(rest), 1), first, dtype=np.int8), rest], axis=1)
        at = np.arange(n, dtype=np.int8)
        for sign in (1, -1):
            lines = np.sort(boards + sign * at, axis=1)
            boards = boards[(np.diff(lines, axis=1) != 0).all(axis=1)]
        placed.append(boards)
    return np.concatenate(placed)


def queens(item: Item) -> State | None:
    given = np.array(item.facts["given"])
    n = round(len(given) ** 0.5)
    boards = _all_queens(n)
    for r, c in zip(*np.nonzero(given.reshape(n, n)), strict=True):
        boards = boards[boards[:, r] == c]
    return np.eye(n, dtype=int)[boards[0]].ravel().tolist() if len(boards) == 1 else None


def nonogram(item: Item) -> State | None:
    """Row by row, with the columns' clues as regular expressions of what may still come."""
    rows, columns = item.facts["clues"]
    n = len(rows)

    def lines(runs: list[int]) -> list[str]:
        if not runs:
            return ["." * n]
        gaps = n - sum(runs) - len(runs) + 1
        found = []
        for extra in product(range(gaps + 1), repeat=len(runs)):
            if sum(extra) <= gaps:
                line = "".join(
                    "." * (more + (k > 0)) + "#" * run for k, (more, run) in enumerate(zip(extra, runs, strict=True))
                )
                found.append(line.ljust(n, "."))
        return found

    down = [set(lines(runs)) for runs in columns]
    prefixes = [[{line[: r + 1] for line in some} for some in down] for r in range(n)]
    across = [lines(runs) for runs in rows]

    def fill(done: list[str]) -> Iterator[State]:
        r = len(done)
        if r == n:
            yield [int(sign == "#") for line in done for sign in line]
            return
        above = ["".join(column) for column in zip(*done, strict=True)] if done else [""] * n
        for line in across[r]:
            if all(above[c] + line[c] in prefixes[r][c] for c in range(n)):
                yield from fill([*done, line])

    return only(fill([]))


def symmetry(item: Item) -> State | None:
    board = np.array(item.facts["given"])
    n = round(len(board) ** 0.5)
    board = board.reshape(n, n)
    views = {
        "left half in its right": [board, np.fliplr(board)],
        "upper half in its lower": [board, np.flipud(board)],
        "turned by 180": [board, np.rot90(board, 2)],
        "left to right and top to bottom": [board, np.fliplr(board), np.flipud(board), np.rot90(board, 2)],
        "repeats a square": [np.tile(board[: n // 2, : n // 2], (2, 2))],
    }
    (some,) = (some for words, some in views.items() if words in item.prompt)
    solved = np.maximum.reduce(some)
    clear = all(((view == 0) | (view == solved)).all() for view in some) and (solved > 0).all()
    return solved.ravel().tolist() if clear else None


def tic_tac_toe(item: Item) -> State | None:
    """By bit boards; level 2 by a full search without a table."""
    given = item.facts["given"]
    n = round(len(given) ** 0.5)
    k = int(re.search(r"and (\d) in a line", item.prompt)[1])  # type: ignore[index]
    wins = []
    for r, c, (dr, dc) in product(range(n), range(n), ((0, 1), (1, 0), (1, 1), (-1, 1))):
        cells = [(r + i * dr, c + i * dc) for i in range(k)]
        if all(0 <= y < n and 0 <= x < n for y, x in cells):
            wins.append(sum(1 << n * y + x for y, x in cells))
    ours, theirs = (sum(1 << cell for cell, sign in enumerate(given) if sign == who) for who in (1, 2))
    full = (1 << n * n) - 1

    def won(board: int) -> bool:
        return any(board & win == win for win in wins)

    def worth(mover: int, other: int) -> int:
        if won(other):
            return -1
        free = [1 << cell for cell in range(n * n) if not (mover | other) >> cell & 1]
        return max((-worth(other, mover | bit) for bit in free), default=0)

    free = [bit for bit in (1 << cell for cell in range(n * n)) if full & ~(ours | theirs) & bit]
    at_once = [bit for bit in free if won(ours | bit)]
    if n == 3:
        values = {bit: -worth(theirs, ours | bit) for bit in free}
        best = at_once or [bit for bit in free if values[bit] == max(values.values())]
    else:
        best = at_once or [bit for bit in free if won(theirs | bit)]
    if len(best) != 1:
        return None
    return [1 if best[0] >> cell & 1 else sign for cell, sign in enumerate(given)]


def hanoi(item: Item) -> State | None:
    """Breadth first over all positions, backward from the goal; each step must be the only shortest one."""
    given, goal = item.facts["given"], item.facts["goal"]
    slots = len(given) // 3
    pegs = tuple(tuple(disc for disc in given[slots * p : slots * p + slots] if disc) for p in range(3))
    discs = tuple(sorted((disc for peg in pegs for disc in peg), reverse=True))
    position = tuple(next(p for p in range(3) if disc in pegs[p]) for disc in discs)  # large first

    def beside(at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for k, peg in enumerate(at):
            if peg not in at[k + 1 :]:
                for to in range(3):
                    if to != peg and to not in at[k + 1 :]:
                        yield (*at[:k], to, *at[k + 1 :])

    away = {(goal,) * len(discs): 0}
    queue = list(away)
    for at in queue:
        for other in beside(at):
            if other not in away:
                away[other] = away[at] + 1
                queue.append(other)
    counted = re.search(r"after the first (?:(\d+) moves|move)\.", item.prompt)
    for _ in range(int(counted[1] or 1)):  # type: ignore[index]
        nearer = [other for other in beside(position) if away[other] == away[position] - 1]
        if len(nearer) != 1:
            return None
        position = nearer[0]
    solved: State = []
    for p in range(3):
        stacked = [disc for disc, peg in zip(discs, position, strict=True) if peg == p]
        solved += [*stacked, *[0] * (slots - len(stacked))]
    return solved


def sliding_puzzle(item: Item) -> State | None:
    """By coordinates; None if a tile is not beside the gap when its turn comes."""
    given = item.facts["given"]
    n = round(len(given) ** 0.5)
    place = {tile: divmod(k, n) for k, tile in enumerate(given)}
    for tile in map(int, re.findall(r"\d+", item.prompt)):
        (y, x), (gap_y, gap_x) = place[tile], place[0]
        if abs(y - gap_y) + abs(x - gap_x) != 1:
            return None
        place[tile], place[0] = place[0], place[tile]
    solved = [0] * (n * n)
    for tile, (y, x) in place.items():
        solved[n * y + x] = tile
    return solved


def jigsaw(item: Item) -> State | None:
    """Column by column, looking pieces up by the colours that they must show."""
    given = item.facts["given"]
    pieces = [tuple(given[k : k + 4]) for k in range(0, len(given), 4)]
    n, quarters = round(len(pieces) ** 0.5), range(4) if "may be turned" in item.prompt else range(1)
    by_edges: dict[tuple[int | None, int | None], set[tuple[int, tuple[int, ...]]]] = {}
    for k, piece in enumerate(pieces):
        for quarter in quarters if k else (0,):
            view = piece[quarter:] + piece[:quarter]
            for up, left in product((view[0], None), (view[3], None)):
                by_edges.setdefault((up, left), set()).add((k, view))
    order = [(r, c) for c in range(n) for r in range(n)]
    laid: dict[tuple[int, int], tuple[int, ...]] = {}
    used: set[int] = set()

    def fill(depth: int) -> Iterator[State]:
        if depth == n * n:
            yield [colour for r in range(n) for c in range(n) for colour in laid[r, c]]
            return
        r, c = order[depth]
        wanted = (laid[r - 1, c][2] if r else None, laid[r, c - 1][1] if c else None)
        for k, view in sorted(by_edges.get(wanted, ())):
            if k in used or (depth == 0) != (k == 0):
                continue
            laid[r, c] = view
            used.add(k)
            yield from fill(depth + 1)
            used.discard(k)

    found = {tuple(state) for state in fill(0)}
    return list(found.pop()) if len(found) == 1 else None


def clock(item: Item) -> State | None:
    spans = {name: int(n) for n, name in re.findall(r"(\d+) (hour|minute)", item.prompt)}
    now = datetime(2000, 1, 1) + timedelta(minutes=item.facts["given"][0])
    then = now + timedelta(hours=spans.get("hour", 0), minutes=spans.get("minute", 0))
    return [then.hour % 12 * 60 + then.minute]


def bar_chart(item: Item) -> State | None:
    """From the prompt's own words."""
    table = re.search(r"sold: (.*?)\. Draw", item.prompt)
    if table is None:
        return [int(number) for number in item.thought.rstrip(".").removeprefix("The heights are ").split(", ")]
    rows = [(city, good, int(sold)) for city, good, sold in (row.split(", ") for row in table[1].split("; "))]
    bars = dict.fromkeys(item.facts["cities"], 0)
    for city, good, sold in rows:
        if above := re.search(r"more than (\d+) sold", item.prompt):
            bars[city] += sold > int(above[1])
        elif (only_of := re.search(r"total of (\w+) sold", item.prompt)) is None or only_of[1] == good:
            bars[city] += sold
    return list(bars.values())


def shortest_path(item: Item) -> State | None:
    """By Bellman and Ford's sums, and how many paths reach each node with its least sum."""
    edges, start, goal = item.facts["edges"], item.facts["start"], item.facts["goal"]
    least = {start: 0}
    for _ in range(item.facts["nodes"] ** 2):
        for a, b, length in [*edges, *((b, a, length) for a, b, length in edges)]:
            if a in least and least[a] + length < least.get(b, 10**9):
                least[b] = least[a] + length
    marked, at = [0] * len(edges), goal
    while at != start:
        back = [k for k, (a, b, length) in enumerate(edges) for here, there in ((a, b), (b, a))
                if here == at and there in least and least[there] + length == least[at]]  # fmt: skip
        if len(back) != 1:
            return None
        marked[back[0]] = 1
        a, b, _ = edges[back[0]]
        at = a + b - at
    return marked


def function_plot(item: Item) -> State | None:
    """The prompt read by sympy; rows may be one off, where rounding decides."""
    import sympy
    from sympy.parsing.sympy_parser import (
        convert_xor,
        implicit_multiplication_application,
        parse_expr,
        standard_transformations,
    )

    asked = re.search(r"Draw (the derivative of )?y = (.*) as a red curve", item.prompt)
    formula = re.sub(r"\|(.*?)\|", r"Abs(\1)", asked[2])  # type: ignore[index]
    rules = (*standard_transformations, convert_xor, implicit_multiplication_application)
    x = sympy.Symbol("x")
    expression = parse_expr(formula, transformations=rules, local_dict={"x": x})
    function = sympy.lambdify(x, sympy.diff(expression, x) if asked[1] else expression)  # type: ignore[index]
    label = item.facts["solution"]
    side, step = (32, 1) if len(label) == 32 else (4 * len(label), 4)
    rows = [side * (5 - float(function(10 * (step * (k + 0.5) / side) - 5))) / 10 for k in range(len(label))]
    near = [
        abs(row + 0.5 - at) < 1 if at else not 0.01 < row < side - 0.01 for row, at in zip(rows, label, strict=True)
    ]
    return list(label) if all(near) else [int(row) + 1 for row in rows]


SOLVERS: dict[str, Callable[[Item], State | None]] = {
    solver.__name__: solver
    for solver in (sudoku, queens, nonogram, symmetry, tic_tac_toe, hanoi, sliding_puzzle, jigsaw, clock, bar_chart,
                   shortest_path, function_plot)
}  # fmt: skip
