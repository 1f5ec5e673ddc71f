"""Grids: perfect mazes by every algorithm, one way from S to E, canonical forms, text."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from uni_train.core.errors import DataError
from uni_train.data_gen.maze.grid import ALGORITHMS, Grid, carve, draw, moves

grids = st.builds(
    lambda algorithm, rows, columns, seed: draw(algorithm, rows, columns, random.Random(seed)),
    st.sampled_from(sorted(ALGORITHMS)), st.integers(1, 16), st.integers(2, 16), st.integers(0, 2**32),
)  # fmt: skip


@given(grids)
def test_a_drawn_maze_is_perfect_and_its_route_walks_through_openings(grid: Grid) -> None:
    rooms = grid.rows * grid.columns
    assert grid.lattice[1::2, 1::2].all() and not grid.lattice[::2, ::2].any()
    assert grid.lattice.sum() == 2 * rooms - 1  # a tree has one opening less than rooms, and the next line connects it
    assert ndimage.label(grid.lattice)[1] == 1
    route = grid.route()
    assert (route[0], route[-1]) == (grid.start, grid.end) and len(set(route)) == len(route) >= 2
    assert len(moves(route)) == len(route) - 1
    for (r, c), (o, p) in pairwise(route):
        assert abs(r - o) + abs(c - p) == 1 and grid.lattice[r + o + 1, c + p + 1]


@given(grids, st.integers(0, 3), st.booleans(), st.booleans())
def test_turned_mirrored_and_walked_backwards_it_is_the_same_canonical_maze(
    grid: Grid, turns: int, mirror: bool, backwards: bool
) -> None:
    marks = np.zeros_like(grid.lattice, dtype=int)
    for value, (r, c) in ((1, grid.start), (2, grid.end)):
        marks[2 * r + 1, 2 * c + 1] = value
    lattice = grid.lattice
    if mirror:
        lattice, marks = lattice[:, ::-1], marks[:, ::-1]
    lattice, marks = np.rot90(lattice, turns), np.rot90(marks, turns)
    start, end = (tuple(int(n) // 2 for n in np.argwhere(marks == value)[0]) for value in (1, 2))
    other = Grid(np.ascontiguousarray(lattice), *((end, start) if backwards else (start, end)))  # type: ignore[arg-type]
    assert other.canonical() == grid.canonical()


@given(grids)
def test_text_is_the_whole_maze(grid: Grid) -> None:
    again = Grid.from_text(grid.to_text())
    assert np.array_equal(again.lattice, grid.lattice) and (again.start, again.end) == (grid.start, grid.end)


def test_wilson_draws_every_maze_of_2_x_3_rooms_about_equally_often() -> None:
    random_ = random.Random(0)
    found: dict[bytes, int] = {}
    for _ in range(3000):
        key = carve("wilson", 2, 3, random_).tobytes()
        found[key] = found.get(key, 0) + 1
    assert len(found) == 15  # the spanning trees of a 2 x 3 grid
    assert min(found.values()) > 140 and max(found.values()) < 260


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["####", "#SE#", "####"], "odd number"),
        (["#####", "#S.E#", "###"], "odd number"),
        (["#####", "#S..#", "#####"], "exactly one S and one E"),
        (["#####", "#S.E.", "#####"], "wall all around"),
        (["#####", "#SE.#", "#####"], "S and E stand in rooms"),
    ],
)
def test_text_that_is_no_maze_is_refused(lines: list[str], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        Grid.from_text(lines)


def test_a_wrong_algorithm_or_size_is_named() -> None:
    with pytest.raises(DataError, match='"eller": choose one of dfs'):
        carve("eller", 3, 3, random.Random(0))
    with pytest.raises(DataError, match="no room for S and E"):
        draw("dfs", 1, 1, random.Random(0))
