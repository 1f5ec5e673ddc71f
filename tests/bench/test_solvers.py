"""The solvers of `bench/solvers.py` agree with the labels, and see a puzzle that has two solutions or another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.solvers import SOLVERS
from uni_train.data_gen.puzzle import Puzzle
from uni_train.data_gen.registry import TASKS
from uni_train.data_gen.task import Item


def first(family: str, level: int) -> Item:
    (item,) = TASKS.get(family)().sample(2, level, "test")  # type: ignore[abstract]
    return item


def test_every_family_has_a_solver() -> None:
    assert {name for name in TASKS.names() if issubclass(TASKS.get(name), Puzzle)} == set(SOLVERS)


@pytest.mark.parametrize("family", SOLVERS)
def test_a_solver_finds_the_label(family: str) -> None:
    for level in (1, 2, 3):
        item = first(family, level)
        assert SOLVERS[family](item) == list(item.facts["solution"])


@pytest.mark.parametrize("family", ["sudoku", "queens", "jigsaw"])
def test_a_second_solution_is_none(family: str) -> None:
    item = first(family, 1)
    given = {"sudoku": [0] * 16, "queens": [0] * 64, "jigsaw": [0] * 4 + [0, 1, 2, 3] + [1, 0, 2, 3] + [2, 2, 3, 3]}
    assert SOLVERS[family](replace(item, facts={**item.facts, "given": given[family]})) is None


def test_a_formula_that_is_not_the_label_is_seen() -> None:
    item = first("function_plot", 1)
    other = replace(item, prompt="Draw y = 0.5 x + 1.25 as a red curve into the axes, for x from -5 to 5.")
    assert SOLVERS["function_plot"](other) != item.facts["solution"]
