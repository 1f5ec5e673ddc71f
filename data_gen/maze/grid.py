"""A maze without its image: rooms, openings, start, end, the way between them.

A grid of R x C rooms is held as a lattice of (2R + 1) x (2C + 1) places. The place (2r + 1, 2c + 1) is the room (r, c).
The places between two rooms are openings or walls; the rest are posts. Carved grids are perfect mazes: between any two
rooms there is exactly one way. The four algorithms differ in what they make likely: `dfs` long winding corridors,
`prim` many short dead ends, `kruskal` something between, `wilson` every perfect maze alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from uni_train.core.errors import DataError
from uni_train.core.seeds import digest

Room = tuple[int, int]
_MOVES = {(0, 1): "R", (0, -1): "L", (1, 0): "D", (-1, 0): "U"}
_SWAPPED = str.maketrans("SE", "ES")


@dataclass(frozen=True, eq=False)
class Grid:
    """lattice: bool [2R + 1, 2C + 1], True where one can walk; start and end: (row, column) of their rooms."""

    lattice: np.ndarray
    start: Room
    end: Room

    @property
    def rows(self) -> int:
        return self.lattice.shape[0] // 2

    @property
    def columns(self) -> int:
        return self.lattice.shape[1] // 2

    def route(self) -> list[Room]:
        """The shortest way from start to end, both included (in a perfect maze the only one). DataError if none."""
        width = self.lattice.shape[1]
        came = _walk(self.lattice, self.start)
        at = _place(self.end, width)
        if at not in came:
            raise DataError(f"no way leads from {self.start} to {self.end} in this maze")
        way = [at]
        while came[at] != at:
            at = came[at]
            way.append(at)
        return [(place // width // 2, place % width // 2) for place in reversed(way)]

    def canonical(self) -> str:
        """Equal for mazes that are one another turned, mirrored or with start and end swapped; 16 hex digits."""
        codes = self.lattice.astype(np.uint8)
        for r, c in (self.start, self.end):
            codes[2 * r + 1, 2 * c + 1] = 2
        views = [np.rot90(view, k) for view in (codes, codes.T) for k in range(4)]
        least = min(views, key=lambda view: (view.shape, view.tobytes()))
        return digest(*least.shape, least.tobytes().hex())

    def view(self, quarters: int, mirrored: bool, swapped: bool) -> Grid:
        """Turned by so many quarters of a circle, mirrored before that, with start and end swapped."""
        signs = np.array([list(line) for line in self.to_text()])
        turned = np.rot90(signs.T if mirrored else signs, quarters)
        lines = ["".join(row) for row in turned]
        return Grid.from_text([line.translate(_SWAPPED) for line in lines] if swapped else lines)

    def to_text(self) -> list[str]:
        """One line of text a row of the lattice: # wall, . open, S, E."""
        lines = [["." if free else "#" for free in row] for row in self.lattice.tolist()]
        for letter, (r, c) in (("S", self.start), ("E", self.end)):
            lines[2 * r + 1][2 * c + 1] = letter
        return ["".join(line) for line in lines]

    @classmethod
    def from_text(cls, lines: Sequence[str]) -> Grid:
        """The inverse of `to_text`. DataError for lines that are no maze: ragged, even, without S, E or outer wall."""
        width = len(lines[0]) if lines else 0
        if len(lines) < 3 or width < 3 or len(lines) % 2 == 0 or width % 2 == 0 or {*map(len, lines)} != {width}:
            raise DataError("a maze is an odd number of lines of one odd length, at least 3 x 3")
        text = "".join(lines)
        if set(text) - set("#.SE") or text.count("S") != 1 or text.count("E") != 1:
            raise DataError("a maze is written with # . and exactly one S and one E")
        lattice = np.array([[sign != "#" for sign in line] for line in lines])
        rim = np.ones_like(lattice)
        rim[1:-1, 1:-1] = False
        if (lattice & rim).any() or lattice[::2, ::2].any() or not lattice[1::2, 1::2].all():
            raise DataError("a maze has rooms at odd places, posts at even ones and a wall all around")
        rooms = [(text.index(letter) // width, text.index(letter) % width) for letter in "SE"]
        if any(not r % 2 or not c % 2 for r, c in rooms):
            raise DataError("S and E stand in rooms, at odd places")
        start, end = ((r // 2, c // 2) for r, c in rooms)
        return cls(lattice, start, end)


def moves(route: Sequence[Room]) -> str:
    """The steps of a route as letters: R right, L left, D down, U up."""
    return "".join(_MOVES[b[0] - a[0], b[1] - a[1]] for a, b in pairwise(route))


def draw(algorithm: str, rows: int, columns: int, random_: random.Random) -> Grid:
    """A perfect maze of at least two rooms, with any start and a distant end.

    The end is any room at least (rows + columns) / 2 steps from the start; if the start has none, the farthest one.
    """
    if rows * columns < 2:
        raise DataError(f"a maze of {rows} x {columns} rooms has no room for S and E: take at least two rooms")
    lattice = carve(algorithm, rows, columns, random_)
    width = 2 * columns + 1
    start = (int(random_.random() * rows), int(random_.random() * columns))
    steps: dict[int, int] = {}
    for place, before in _walk(lattice, start).items():  # in the order of the distance
        steps[place] = steps[before] + 1 if place != before else 0
    far = max(2, (rows + columns) // 2)
    ends = [place for place, n in steps.items() if n >= far] or [place]
    at = ends[int(random_.random() * len(ends))]
    return Grid(lattice, start, (at // width // 2, at % width // 2))


def carve(algorithm: str, rows: int, columns: int, random_: random.Random) -> np.ndarray:
    """The lattice of a random perfect maze, bool [2R + 1, 2C + 1]. DataError for an unknown algorithm."""
    if algorithm not in ALGORITHMS:
        raise DataError(f'no algorithm is called "{algorithm}": choose one of {", ".join(ALGORITHMS)}')
    width = 2 * columns + 1
    free = bytearray((2 * rows + 1) * width)
    for place in _doors(rows, columns):
        free[place] = 1
    for a, b in ALGORITHMS[algorithm](rows, columns, random_):
        free[(a + b) // 2] = 1
    return np.frombuffer(bytes(free), dtype=bool).reshape(2 * rows + 1, width)


# ------------------------------------------------------------------------------------- places: row * width + column


def _place(room: Room, width: int) -> int:
    return (2 * room[0] + 1) * width + 2 * room[1] + 1


@cache
def _doors(rows: int, columns: int) -> dict[int, tuple[int, ...]]:
    """For the place of each room those of its neighbours."""
    width = 2 * columns + 1
    doors = {}
    for r in range(rows):
        for c in range(columns):
            beside = ((r - 1, c), (r, c - 1), (r, c + 1), (r + 1, c))
            doors[_place((r, c), width)] = tuple(
                _place((y, x), width) for y, x in beside if 0 <= y < rows and 0 <= x < columns
            )
    return doors


def _walk(lattice: np.ndarray, start: Room) -> dict[int, int]:
    """Breadth first from `start`: for every room that can be reached the one it was reached from."""
    width = lattice.shape[1]
    doors = _doors(lattice.shape[0] // 2, width // 2)
    free = lattice.tobytes()
    first = _place(start, width)
    came = {first: first}
    queue = [first]
    for place in queue:
        for other in doors[place]:
            if free[(place + other) // 2] and other not in came:
                came[other] = place
                queue.append(other)
    return came


# ------------------------------------------------------------------------- algorithms: pairs of rooms to be connected

Pairs = Iterable[tuple[int, int]]


def _dfs(rows: int, columns: int, random_: random.Random) -> Pairs:
    """Walk to a random room not yet seen; go back where there is none."""
    doors = _doors(rows, columns)
    first = random_.choice(list(doors))
    seen, stack = {first}, [first]
    while stack:
        here = stack[-1]
        fresh = [other for other in doors[here] if other not in seen]
        if not fresh:
            stack.pop()
            continue
        there = fresh[int(random_.random() * len(fresh))]
        seen.add(there)
        stack.append(there)
        yield here, there


def _prim(rows: int, columns: int, random_: random.Random) -> Pairs:
    """Grow by a random one of all doors that lead out of what is connected."""
    doors = _doors(rows, columns)
    first = random_.choice(list(doors))
    seen = {first}
    rim = [(first, other) for other in doors[first]]
    while rim:
        pick = int(random_.random() * len(rim))
        rim[pick], rim[-1] = rim[-1], rim[pick]
        here, there = rim.pop()
        if there not in seen:
            seen.add(there)
            rim += [(there, other) for other in doors[there] if other not in seen]
            yield here, there


def _kruskal(rows: int, columns: int, random_: random.Random) -> Pairs:
    """All doors in random order; open those that connect what is not connected."""
    doors = _doors(rows, columns)
    pairs = [(a, b) for a, beside in doors.items() for b in beside if a < b]
    random_.shuffle(pairs)
    parent = {place: place for place in doors}

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place

    for a, b in pairs:
        root_a, root_b = root(a), root(b)
        if root_a != root_b:
            parent[root_a] = root_b
            yield a, b


def _wilson(rows: int, columns: int, random_: random.Random) -> Pairs:
    """Random walks, their loops erased, until they meet what is connected: uniform over all spanning trees."""
    doors = _doors(rows, columns)
    places = list(doors)
    random_.shuffle(places)
    connected = {places.pop()}
    for first in places:
        onward: dict[int, int] = {}
        here = first
        while here not in connected:
            beside = doors[here]
            onward[here] = here = beside[int(random_.random() * len(beside))]
        here = first
        while here not in connected:
            connected.add(here)
            yield here, onward[here]
            here = onward[here]


ALGORITHMS: dict[str, Callable[[int, int, random.Random], Pairs]] = {
    "dfs": _dfs, "prim": _prim, "kruskal": _kruskal, "wilson": _wilson,
}  # fmt: skip
