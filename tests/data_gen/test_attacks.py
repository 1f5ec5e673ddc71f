"""Attacks: each image is what its name says, right ones stay right, wrong ones are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import numpy as np
import pytest

from uni_train.data_gen.attacks import ATTACKS, WIDE, Case, attack_items
from uni_train.data_gen.export import filled_levels
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.puzzle import Puzzle
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.data_gen.task import Item, Task

MAZES = Maze("classic")


def attacked(task: Task, items: list[Item], **options: bool) -> Iterator[Case]:
    """Those on the first item."""
    return takewhile(lambda case: case.item is items[0], attack_items(task, items, 0, **options))


STYLES = [  # of other tasks there is but one
    TASKS.get(name)(style)  # type: ignore[call-arg]
    for kind, styles in ((Puzzle, ("plain", "nano")), (Maze, ("varied", "nano")))
    for name in TASKS.names() if issubclass(TASKS.get(name), kind) for style in styles
]  # fmt: skip
OTHERS = [get_task(name) for name in TASKS.names() if not issubclass(TASKS.get(name), Puzzle | Maze)]


@pytest.mark.parametrize("task", [*STYLES, *OTHERS], ids=lambda task: f"{task.name} {getattr(task, 'style', '')}")
def test_verifiers_of_tasks_hold(task: Task) -> None:
    level = filled_levels(task, "validation")[0]  # not 2 for mazes, where a mirrored one may be right
    items = task.generate(2, level, "test", 0)
    judged = [(case.attack, task.verify(case.item, case.image).passed) for case in attacked(task, items)]
    wrong = {"accept": False, "refuse": True}
    assert [attack.name for attack, passed in judged if wrong.get(attack.expected) == passed] == []
    assert {attack.expected for attack, _ in judged} == {"accept", "refuse", "survive"}


def test_each_image_is_what_its_name_says() -> None:
    items = MAZES.generate(2, 3, "test", 0)
    cases = {case.attack.name: case for case in attacked(MAZES, items)}
    assert list(cases) == [attack.name for attack in ATTACKS]
    target, given = MAZES.render(items[0]), MAZES.input_image(items[0])
    for name in ("as it is", "RGBA file", "file turned by EXIF", "16-bit file"):
        assert np.array_equal(cases[name].image, target), name
    for name in ("JPEG quality 70", "JPEG quality 85", "blurred", "resized to 75 % and back", "palette file"):
        assert 0 < np.abs(cases[name].image.astype(int) - target).mean() < 3, name
    assert np.array_equal(cases["shifted 2 pixels"].image[:, 2:], target[:, :-2])
    assert np.array_equal(cases["input copied"].image, given)
    assert np.array_equal(cases["another item's answer"].image, MAZES.render(items[1]))
    assert cases["20,000 pixels wide"].image.shape == (16, WIDE, 3)

    changed = (target != given).any(axis=2)
    assert np.array_equal(cases["answer without the input"].image[changed], target[changed])
    erased = (cases["input erased in part"].image != target).any(axis=2)
    assert erased.any() and not (erased & changed).any()
    added = (cases["one part twice"].image != target).any(axis=2)
    assert added.any() and not (added & changed).any()
    for name, most in (("thin line over it", 0.01), ("faint line over it", 0.05), ("short stroke over it", 0.01),
                       ("dot over it", 0.01)):  # fmt: skip
        over = (cases[name].image != target).any(axis=2)
        assert 0 < over.mean() < most and ("line" in name or not (over & changed).any()), name
    half = (cases["half of the answer"].image != target).any(axis=2)
    assert half.any() and not (half & ~changed).any() and half.sum() < changed.sum()


def test_a_part_that_nearly_covers_an_equal_one_is_no_second_part() -> None:
    task = TASKS.get("queens")("nano")  # type: ignore[call-arg]
    for case in attack_items(task, task.generate(20, 3, "test", 0), 0, only=["one part twice"]):
        assert (case.image != case.target).any(axis=2).sum() > 2  # of the 4 pixels of a queen


def test_an_answer_that_is_its_own_mirror_image_is_not_mirrored() -> None:
    task = TASKS.get("tic_tac_toe")("nano")  # type: ignore[call-arg]
    items = task.generate(60, 1, "test", 0)
    boards = {item.id: np.reshape(item.facts["solution"], (3, 3)) for item in items}
    mirrored = {case.item.id for case in attack_items(task, items, 0, only=["mirrored"])}
    own = {name for name, board in boards.items() if np.array_equal(board, board[:, ::-1])}
    assert own and not own & mirrored and mirrored


def test_attacks_repeat_and_differ_by_seed() -> None:
    items = MAZES.generate(1, 3, "test", 0)
    first, again, other = (next(attack_items(MAZES, items, seed, only=["noise"])).image for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_what_equals_an_accepted_image_is_no_wrong_one() -> None:
    """A verifier of another kind: any picture is right, so no wrong image is left for a trusted task."""

    class Lenient(Maze):
        def verify(self, item, image):
            return MAZES.verify(item, MAZES.render(item))

        def render(self, item, seed=0):
            image = np.full((64, 64, 3), 255, np.uint8)
            image[24:40, 24:40] = (255, 0, 0)  # the same mirrored and turned
            return image

    lenient = Lenient("classic")
    items = lenient.generate(2, 3, "test", 0)
    names = {case.attack.name for case in attacked(lenient, items)}
    assert not {"mirrored", "turned by 90 degrees", "another item's answer"} & names and "half of the answer" in names
    assert {case.attack.expected for case in attacked(lenient, items, trusted=True)} == {"accept", "survive"}
