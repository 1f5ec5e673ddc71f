"""The verifier: a slice of the corruption suite, nano's places, mazes with several ways, scores, what is unreadable.

The whole suite is bench/maze.py's; its figures are in docs/maze.md.
"""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise

import cv2
import numpy as np
import pytest
from PIL import Image

from bench import maze_corruptions as corruptions
from bench.maze_corruptions import suite
from uni_train.core.seeds import rng
from uni_train.data_gen.maze.grid import Grid
from uni_train.data_gen.maze.picture import NANO_COLOURS, STYLES, choose_picture, draw
from uni_train.data_gen.maze.task import Maze, read_facts
from uni_train.data_gen.maze.verifier import CHECKS, judge


@pytest.mark.slow
def test_a_slice_of_the_suite_is_judged_without_a_mistake() -> None:
    seen = set()
    for case in suite(seed=11, mazes=3):
        verdict = judge(*read_facts(case.item), case.image)
        assert [check.name for check in verdict.checks] == list(CHECKS)
        assert not case.is_wrong(verdict), (case.kind, case.name, verdict)
        assert verdict.score is not None and 0 <= verdict.score <= 1
        if case.kind == "worn":
            assert verdict.score == 1
        seen.add((case.kind, case.name))
    assert len(seen) == len(corruptions.WEAR) + len(corruptions.FAULTS) + len(corruptions.TRAPS)


LOOP = ["#######", "#S...E#", "#.###.#", "#.....#", "#######"]  # two ways from S to E


@pytest.mark.parametrize("style", ["nano", "classic"])
def test_any_valid_way_counts_and_both_at_once_do_not(style: str) -> None:
    grid = Grid.from_text(LOOP)
    picture = choose_picture(style, 3, None, rng())
    above, below = [(0, 0), (0, 1), (0, 2)], [(0, 0), (1, 0), (1, 1), (1, 2), (0, 2)]
    assert judge(grid, picture, draw(grid, picture, above)).passed
    assert judge(grid, picture, draw(grid, picture, below)).passed
    both = np.minimum(draw(grid, picture, above), draw(grid, picture, below))
    assert failed(judge(grid, picture, both)) == {"reasoning_success"}


def failed(verdict) -> set[str]:  # type: ignore[no-untyped-def]
    return {check.name for check in verdict.checks if check.status == "fail"}


# ------------------------------------------------------------------------------------------------------------- nano


TASK = Maze("nano")
ITEM = TASK.generate(1, 4, "test", 4)[0]  # with a room off the way
TARGET = TASK.render(ITEM)


def paint(image: np.ndarray, place: tuple[int, int], like: str) -> np.ndarray:
    changed = image.copy()
    changed[2 * place[0] : 2 * place[0] + 2, 2 * place[1] : 2 * place[1] + 2] = NANO_COLOURS[like]
    return changed


def test_in_nano_only_the_solution_passes_whatever_place_is_changed() -> None:
    assert TASK.verify(ITEM, TARGET).passed
    for place in np.ndindex(TARGET.shape[0] // 2, TARGET.shape[1] // 2):
        for colour in ("floor", "wall", "path", "start", "end"):
            changed = paint(TARGET, place, colour)
            assert TASK.verify(ITEM, changed).passed == np.array_equal(changed, TARGET), (place, colour)


def test_in_nano_each_fault_fails_its_check() -> None:
    grid = read_facts(ITEM)[0]
    (r, c), (o, p) = grid.route()[:2]
    assert failed(TASK.verify(ITEM, paint(TARGET, (r + o + 1, c + p + 1), "floor"))) == {"reasoning_success"}
    wall = next((r, c) for r, c in np.argwhere(~grid.lattice).tolist() if 0 < r < 8 and 0 < c < 8)
    assert "rule_obey" in failed(TASK.verify(ITEM, paint(TARGET, wall, "path")))
    assert failed(TASK.verify(ITEM, paint(TARGET, wall, "floor"))) == {"background_consistency"}
    faint = np.rint(0.5 * TARGET + 0.5 * TARGET.mean()).astype(np.uint8)
    assert "visual_quality" in failed(TASK.verify(ITEM, faint))
    flooded = TASK.verify(ITEM, np.full_like(TARGET, (255, 70, 70)))
    assert {"rule_obey", "background_consistency"} <= failed(flooded)
    assert flooded.score is not None and flooded.score < 0.05


def test_in_nano_noise_and_jpeg_are_borne_and_what_is_smaller_than_a_place_is_seen() -> None:
    random_ = np.random.default_rng(0)
    for item in TASK.generate(20, 5, "test", 9):
        target = TASK.render(item)
        noisy = np.clip(target + random_.normal(0, 15, target.shape), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(target).save(file, "JPEG", quality=85)
        for right in (noisy, np.asarray(Image.open(file).convert("RGB"))):
            assert TASK.verify(item, right).passed, item.id
        for y, x in (np.argwhere((target != target[::-1, ::-1]).any(axis=2))[:3]).tolist():
            image = target.copy()
            image[y, x] = 255 - image[y, x]
            assert not TASK.verify(item, image).passed, (item.id, y, x)


# ----------------------------------------------------------------------------------------------------- more than a way


@pytest.mark.parametrize("style", [style for style in STYLES if style != "nano"])
def test_a_second_way_that_is_thin_or_faint_is_refused(style: str) -> None:
    """From S into rooms that are off the way."""
    task = Maze(style)
    for item in task.generate(3, 5, "test", 0):
        grid, picture = read_facts(item)
        rooms = [room for room in np.ndindex(grid.rows, grid.columns) if room not in grid.route()]
        room = max(rooms, key=lambda room: abs(room[0] - grid.start[0]) + abs(room[1] - grid.start[1]))
        middles = [tuple(round(at) for at in picture.centre(room)) for room in replace(grid, end=room).route()]
        target = task.render(item)
        for width, strength in ((0, 1.0), (0.08, 0.3), (0.2, 0.3)):  # thin, faint, wide
            over = np.zeros((picture.side, picture.side), np.uint8)
            for one, other in pairwise(middles):
                cv2.line(over, one, other, 1, max(1, round(width * picture.corridor)))
            mixed = np.rint(target + (np.array(picture.path_rgb) - target) * strength)
            image = np.where(over[..., None] > 0, mixed, target).astype(np.uint8)
            assert not task.verify(item, image).passed, (item.id, width)


# ------------------------------------------------------------------------------------------------ scores, unreadable


@pytest.mark.parametrize("style", ["nano", "classic"])
def test_the_score_grows_with_the_way_and_shrinks_with_every_other_fault(style: str) -> None:
    (item,) = Maze(style).sample(8, 6, "test")
    grid, picture = read_facts(item)
    route = grid.route()

    def score(image: np.ndarray) -> float:
        found = judge(grid, picture, image).score
        assert found is not None
        return found

    partial = [score(draw(grid, picture, route[: 1 + i])) for i in range(1, len(route))]
    assert partial == sorted(partial) and partial[0] > 0 and partial[-1] == 1
    r, c = grid.start
    sideways = range(c + 1, grid.columns) if c < grid.columns / 2 else range(c - 1, -1, -1)
    assert score(draw(grid, picture, [grid.start, *((r, k) for k in sideways)])) < 0.5  # through walls, too
    opened = grid.lattice.copy()
    r, c = next((r, c) for r, c in np.argwhere(~opened).tolist() if r % 2 != c % 2 and 0 < r < 12 and 0 < c < 12)
    opened[r, c] = True
    changed = score(draw(replace(grid, lattice=opened), picture, route))
    assert 0.3 < changed < 1
    assert score(draw(grid, replace(picture, floor_rgb=picture.path_rgb))) < 0.5


def test_what_nobody_can_tell_is_unreadable() -> None:
    (item,) = Maze("classic").sample(0, 8, "test")
    task = Maze()
    for image in (np.full((512, 512, 3), 255, np.uint8), task.render(item)[::32, ::32].copy()):
        verdict = task.verify(item, image)
        assert verdict.status == "unreadable" and verdict.score == 0
        assert {check.name for check in verdict.checks} == set(CHECKS)
    with pytest.raises(ValueError, match=r"uint8 \[H, W, 3\]"):
        task.verify(item, task.render(item)[:, :, 0])


def test_the_size_and_the_shape_of_a_picture_do_not_matter() -> None:
    task = Maze("classic")
    (item,) = task.sample(3, 6, "test")
    target = Image.fromarray(task.render(item))
    for size in ((1024, 1024), (300, 310), (1184, 1120)):
        assert task.verify(item, np.asarray(target.resize(size, Image.Resampling.LANCZOS))).passed
