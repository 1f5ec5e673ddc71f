"""What all families of puzzles promise: targets pass, nothing else does, and every image gets a verdict."""

from __future__ import annotations

import io
from functools import cache
from itertools import pairwise

import cv2
import networkx
import numpy as np
import pytest
from PIL import Image

from uni_train.core.errors import DataError
from uni_train.core.seeds import rng
from uni_train.data_gen.canvas import INK, RED, Canvas
from uni_train.data_gen.puzzle import CHECKS, NANO, PLAIN, Puzzle
from uni_train.data_gen.registry import TASKS, task_of
from uni_train.data_gen.shortcuts import questions_of
from uni_train.data_gen.shortcuts import tally as tally_strategies
from uni_train.data_gen.shortest_path.task import _nodes, graph_of
from uni_train.data_gen.task import Item

FAMILIES = [name for name in TASKS.names() if issubclass(TASKS.get(name), Puzzle)]
assert len(FAMILIES) == 12
families = pytest.mark.parametrize("family", FAMILIES)
styles = pytest.mark.parametrize("style", [PLAIN, NANO])


def puzzle(family: str, style: str = PLAIN) -> Puzzle:
    return TASKS.get(family)(style)  # type: ignore[no-any-return, call-arg]


@cache
def items_of(family: str, style: str = PLAIN) -> list[Item]:
    """One item a level; drawn once, for that takes longer than to verify it."""
    task = puzzle(family, style)
    return [item for level in task.possible_levels for item in task.generate(1, level, "test", seed=3)]


@families
@styles
def test_the_target_passes_and_states_of_lazy_strategies_do_not(family: str, style: str) -> None:
    ways: set[str] = set()
    for item in items_of(family, style):
        task = task_of(item)
        target = task.render(item, 0)
        verdict = task.verify(item, target)
        assert (verdict.passed, verdict.score) == (True, 1.0), verdict.reason
        copied = task.verify(item, task.input_image(item))
        assert (copied.status, copied.score) == ("fail", 0.0) and copied.checks[0].status == "pass"
        assert isinstance(task, Puzzle) and tuple(check.name for check in verdict.checks) == CHECKS
        ways |= set(task.lazy(item.facts, rng(item.id)))
        for name, state in task.lazy(item.facts, rng(item.id)).items():
            if tuple(state) != tuple(item.facts["solution"]):
                drawn = task.verify(item, task.picture(item.facts, state))
                assert drawn.status == "fail" and (drawn.score or 0) < 1, name
        assert item.thought.endswith(".") and item.answer
    assert ways == set(puzzle(family).lazy_ways) - ({"the first row of each city"} if style == NANO else set())


def test_reports_know_what_lazy_strategies_reach() -> None:
    items = puzzle("tic_tac_toe", NANO).generate(40, 1, "test", 0)
    tallies = {tally.name: tally.share for tally in tally_strategies(questions_of(items))}
    assert tallies["copy of the input"] == 0 and 0.1 < tallies["any empty cell"] < 0.6


@families
@styles
def test_frames_lead_from_the_input_to_the_target(family: str, style: str) -> None:
    for item in items_of(family, style)[:2]:
        task = task_of(item)
        frames = task.frames(item)
        given = task.input_image(item)
        assert np.array_equal(frames[0], given) and np.array_equal(frames[-1], task.render(item, 0))
        assert {frame.shape for frame in frames} == {given.shape} and len(frames) > 1
        verdicts = [task.verify(item, frame) for frame in frames]
        assert all(verdict.checks[0].status == "pass" for verdict in verdicts), "frames keep what is given"
        assert not any(verdict.passed for verdict in verdicts[:-1])


@families
@styles
def test_what_is_drawn_beside_the_answer_is_refused(family: str, style: str) -> None:
    """Text over it, half of the input's frame gone, another item's answer."""
    one, other = puzzle(family, style).generate(2, 1, "test", seed=5)
    task = task_of(one)
    target = task.render(one, 0)
    height, width = target.shape[:2]
    scribble = Canvas(height, width)
    scribble.pixels[:] = target
    scribble.text((0.62 * height, 0.45 * width), "55", height / 6, (90, 90, 90) if style == PLAIN else INK)
    verdict = task.verify(one, scribble.pixels)
    assert not verdict.passed
    if one.facts["solution"] != other.facts["solution"] or family == "function_plot":
        assert not task.verify(one, task.render(other, 0)).passed
    for empty in (np.zeros_like(target), np.full_like(target, 255), 255 - target):
        assert not task.verify(one, empty).passed


def test_no_sine_passes_as_another() -> None:
    task = puzzle("function_plot")
    items = task.generate(80, 3, "test", seed=0)
    assert not [
        (one.answer, other.answer) for one in items for other in items
        if one is not other and task.solves(one.facts, tuple(other.facts["solution"]))
    ]  # fmt: skip


def test_axes_that_are_erased_between_small_waves_are_missed() -> None:
    task = puzzle("function_plot", NANO)
    items = task.generate(30, 3, "test", seed=0)
    for item in items:
        image = task.render(item, 0)
        part = image[10:22, 6:18]
        part[part.max(axis=2) < 50] = 250
        assert not task.verify(item, image).passed, item.answer


def test_one_queen_too_many_is_refused_wherever_it_stands() -> None:
    (item,) = puzzle("queens", NANO).generate(1, 1, "test", seed=0)
    task = task_of(item)
    target = task.render(item, 0)
    free = next(cell for cell, queen in enumerate(item.facts["solution"]) if not queen and sum(divmod(cell, 8)) % 2)
    top, left = (4 * at for at in divmod(free, 8))
    for y, x in np.ndindex(3, 3):  # a queen has 2 x 2 of the 4 x 4 pixels of a dark square
        image = target.copy()
        image[top + y : top + y + 2, left + x : left + x + 2] = target[target.min(axis=2) < 50][0]
        assert not task.verify(item, image).passed, (y, x)


@families
@styles
def test_any_image_gets_a_verdict(family: str, style: str) -> None:
    item = items_of(family, style)[0]
    for shape in ((1, 1), (7, 20_000), (20_000, 7), (100, 90), (64, 256), (3, 3), (600, 610)):
        noise = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
        assert not task_of(item).verify(item, noise).passed, shape


def jpeg(image: np.ndarray, quality: int = 70) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def shifted(image: np.ndarray) -> np.ndarray:
    matrix = np.array([[1, 0, 2], [0, 1, -1.5]])
    return cv2.warpAffine(image, matrix, image.shape[1::-1], borderMode=cv2.BORDER_REPLICATE)


def larger(image: np.ndarray) -> np.ndarray:
    return cv2.resize(image, (1024, 1024), interpolation=cv2.INTER_CUBIC)


def gamma(value: float):  # type: ignore[no-untyped-def]
    return lambda image: np.rint(255 * (image / 255) ** value).astype(np.uint8)


def noisy(image: np.ndarray) -> np.ndarray:
    return np.clip(image + np.random.default_rng(0).normal(0, 12, image.shape), 0, 255).astype(np.uint8)


def blurred(image: np.ndarray) -> np.ndarray:
    return cv2.GaussianBlur(image, (0, 0), 0.5)


ANYWHERE = {"bright": gamma(0.8), "dark": gamma(1.25), "noise": noisy, "blur": blurred}
PLAIN_ONLY = {"JPEG": jpeg, "shift": shifted, "enlargement": larger}


@families
@styles
def test_what_models_and_files_do_to_a_right_image_is_accepted(family: str, style: str) -> None:
    for item in items_of(family, style):
        task = task_of(item)
        target = task.render(item, 0)
        for name, change in (ANYWHERE | (PLAIN_ONLY if style == PLAIN else {})).items():
            verdict = task.verify(item, change(target))
            assert verdict.passed, (name, item.level, verdict.reason)


def test_most_small_images_are_read_after_jpeg() -> None:
    """None was: JPEG halves the resolution of colour, and lines are a pixel thin."""
    items = [item for family in FAMILIES for item in items_of(family, NANO)]
    read = [task_of(item).verify(item, jpeg(task_of(item).render(item, 0), 85)).passed for item in items]
    assert sum(read) >= 0.95 * len(read)


def test_a_second_path_one_pixel_thin_is_refused() -> None:
    """From the first node to the last of a graph, along its edges, beside the right one."""
    for item in puzzle("shortest_path").generate(4, 1, "test", 0):
        task = task_of(item)
        for way in networkx.all_simple_paths(graph_of(item.facts["edges"]), item.facts["start"], item.facts["goal"]):
            if way != item.facts["path"]:
                image, nodes = task.render(item, 0).copy(), _nodes(item.facts)
                for (y, x), (y1, x1) in pairwise(nodes[node] for node in way):
                    cv2.line(image, (int(x), int(y)), (int(x1), int(y1)), RED, 1)
                verdict = task.verify(item, image)
                assert verdict.checks[0].status == "fail", (item.id, way)


@families
@styles
def test_a_solved_puzzle_with_more_in_it_is_no_filtered_target(family: str, style: str) -> None:
    """What JPEG and gamma do is made up for, a second answer below them is not."""
    item = items_of(family, style)[0]
    task = task_of(item)
    image = task.render(item, 0).copy()
    height, width = image.shape[:2]
    cv2.line(image, (0, height // 5), (width, int(0.7 * height)), RED, 1)
    for change in (gamma(0.8), lambda one: jpeg(one, 85), blurred):
        assert not task.verify(item, change(image)).passed


@families
def test_a_larger_picture_is_the_same_puzzle(family: str) -> None:
    (item,) = TASKS.get(family)(PLAIN, 512).generate(1, 1, "test", seed=2)  # type: ignore[call-arg]
    image = task_of(item).render(item, 0)
    assert image.shape == (512, 512, 3) and task_of(item).verify(item, image).passed


@families
def test_impossible_sizes_levels_and_styles_are_refused(family: str) -> None:
    cls = TASKS.get(family)
    for arguments, said in (((PLAIN, 64), "128 to 2048"), ((NANO, 256), "leave the side out"), (("naon",), "nano")):
        with pytest.raises(DataError, match=said):
            cls(*arguments)
    with pytest.raises(DataError, match="no level 99: choose one of 1, 2"):
        cls().sample(0, 99)
    small = puzzle(family, NANO)
    for level in set(small.levels) - set(small.possible_levels):
        with pytest.raises(DataError, match="too large for the style nano: choose one of 1"):
            small.sample(0, level)
