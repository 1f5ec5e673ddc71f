"""The maze task: disjoint splits, the same items everywhere, pictures of every style that their verifier accepts."""

from __future__ import annotations

import re
from random import Random
from typing import get_args

import numpy as np
import pytest

from uni_train.config.schema import MazeStyle
from uni_train.core.errors import DataError
from uni_train.data_gen.maze.grid import Grid
from uni_train.data_gen.maze.picture import NANO_COLOURS, STYLES
from uni_train.data_gen.maze.task import INSTRUCTION, Maze, read_facts
from uni_train.data_gen.objects import get_world
from uni_train.data_gen.task import Item


def test_no_maze_comes_twice_its_canonical_form_is_that_of_its_grid_and_no_split_depends_on_the_style() -> None:
    items = Maze("nano").generate(150, 4, "train", seed=3)
    assert len({"".join(item.facts["maze"]) for item in items}) == 150
    assert all(Grid.from_text(item.facts["maze"]).canonical() == item.facts["canonical"] for item in items)
    nano, classic, varied = (Maze(style).sample(5, 6, "test")[0] for style in ("nano", "classic", "varied"))
    assert nano.facts["maze"] == classic.facts["maze"] == varied.facts["maze"]
    assert len({nano.id, classic.id, varied.id}) == 3


def test_a_recipe_chooses_the_look() -> None:
    assert get_args(MazeStyle) == STYLES
    nano = Maze.in_world(get_world("nano"))
    assert nano.configured({"maze_side": 80, "maze_style": "bold"}) == Maze("bold", 80)
    assert nano.configured({"maze_side": None, "maze_style": None}) == Maze("nano")


@pytest.mark.parametrize("style", STYLES)
def test_the_target_of_every_style_passes_and_the_input_does_not(style: str) -> None:
    task = Maze(style)
    for level in (3, 8):
        (item,) = task.sample(level, level, "test")
        given, target = task.input_image(item), task.render(item)
        assert given.shape == target.shape and given.dtype == target.dtype == np.uint8
        verdict = task.verify(item, target)
        assert verdict.passed and verdict.score == 1.0, verdict.reason
        copied = task.verify(item, given)
        assert copied.status == "fail" and copied.score == 0.0


def test_every_size_can_be_drawn_and_read_or_is_refused() -> None:
    task = Maze("classic")
    for level in (*range(2, 8), 16, 24):
        (item,) = task.sample(0, level, "test")
        assert task.verify(item, task.render(item)).passed
    small = Maze("varied", 256)  # every fourth draw of this size would be unreadable
    assert all(small.verify(item, small.render(item)).passed for item in small.generate(6, 16, "train", 3))
    for side, level, said in (
        (128, 24, "take a larger image"),
        (120, 9, "the verifier cannot read the solution of a 9 x 9 maze in the style classic"),
    ):
        with pytest.raises(DataError, match=said):
            Maze("classic", side).sample(0, level)


def test_nano_pictures_are_places_of_2_x_2_pixels() -> None:
    task = Maze("nano")
    (item,) = task.sample(1, 4, "train")
    image = task.render(item)
    assert image.shape == (20, 20, 3)
    assert np.array_equal(image, image[::2, ::2].repeat(2, axis=0).repeat(2, axis=1))
    assert {tuple(colour) for colour in image.reshape(-1, 3).tolist()} == set(NANO_COLOURS.values())
    with pytest.raises(DataError, match="leave the side out"):
        Maze("nano", 16).sample(0, 4)


def test_a_nano_maze_lies_anywhere_on_a_larger_side() -> None:
    task = Maze("nano", 40)
    for level, places in ((4, 36), (8, 4), (9, 1)):
        items = [task.sample(seed, level, "test")[0] for seed in range(40)]
        seen = {(picture.left, picture.top) for _, picture in map(read_facts, items)}
        assert min(places, 12) <= len(seen) <= places and all(left % 4 == top % 4 == 0 for left, top in seen)
        for seed, item in enumerate(items[:4]):
            assert item.facts["maze"] == Maze("nano").sample(seed, level, "test")[0].facts["maze"]
            image = task.render(item)
            assert image.shape == (40, 40, 3) and task.verify(item, image).passed
            assert not task.verify(item, task.input_image(item)).score
            assert places == 1 or not task.verify(item, np.roll(image, (4, 4), (0, 1))).passed
            view = task.symmetric(item, Random(seed))
            assert task.verify(view, task.render(view)).passed
    (item,) = task.sample(0, 4)
    image = task.render(item)
    for corner in (image[:2, :2], image[-2:, -2:]):  # the maze cannot be in both
        corner[:] = NANO_COLOURS["path"]
    assert "red leaves the maze" in task.verify(item, image).reason
    with pytest.raises(DataError, match="larger multiple of 4, not 42"):
        Maze("nano", 42).sample(0, 4)


def test_all_mazes_of_2_x_2_rooms_are_test() -> None:
    assert len(Maze("nano").generate(20, 2, "test", 0)) == 20
    with pytest.raises(DataError, match="too few to be divided"):
        Maze("nano").sample(0, 2, "train")
    with pytest.raises(DataError, match=r"found only 24 different maze2 prompts .* ask for at most 24"):
        Maze("nano").generate(100, 2, "test", 0)


def test_prompt_answer_and_thought() -> None:
    (item,) = Maze("classic").sample(2, 5)
    assert item.prompt == INSTRUCTION and INSTRUCTION.startswith("Starting from the green letter 'S' and ending at")
    grid, _ = read_facts(item)
    (r, c), steps = grid.start, {"R": (0, 1), "L": (0, -1), "D": (1, 0), "U": (-1, 0)}
    for letter in item.answer:
        r, c = r + steps[letter][0], c + steps[letter][1]
    assert (r, c) == grid.end
    assert sum(map(int, re.findall(r"\d+", item.thought))) == len(item.answer)


@pytest.mark.parametrize("style", ["nano", "varied"])
def test_a_symmetric_maze_is_the_same_maze_with_its_own_solution(style: str) -> None:
    task = Maze(style)
    (item,) = task.sample(3, 4, "train")
    views = [task.symmetric(item, Random(seed)) for seed in range(120)]
    texts = {"".join(view.facts["maze"]) for view in views}
    assert len(texts) == 16 and task.distinct(item) in texts
    back = str.maketrans("LRUD", "RLDU")
    assert item.answer.translate(back)[::-1] in {view.answer for view in views}
    for view in {task.distinct(view): view for view in views}.values():
        assert read_facts(view)[0].canonical() == item.facts["canonical"]
        assert task.verify(view, task.render(view)).passed
        assert sum(map(int, re.findall(r"\d+", view.thought))) == len(view.answer) == len(item.answer)
        assert (
            view.thought.split()[3].rstrip(",.") == {"R": "right", "L": "left", "D": "down", "U": "up"}[view.answer[0]]
        )


def test_an_item_that_is_no_maze_is_named() -> None:
    broken = Item("maze4/test/x", "maze", 4, "test", "", "", {"maze": ["###"]}, "")
    with pytest.raises(DataError, match="maze4/test/x: its facts do not describe a maze"):
        Maze().input_image(broken)
