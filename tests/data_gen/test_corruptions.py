"""Wrong images that every built-in verifier refuses."""

import pytest

from uni_train.data_gen.corruptions import corrupted
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.registry import TASKS, filled_levels, get_task


@pytest.mark.parametrize("name", TASKS.names())
def test_no_corrupted_image_passes(name):
    task = get_task(name)
    level = filled_levels(task, "test")[0]
    items = task.generate(4, level, "test", 0)
    for item in items:
        images = corrupted(item, items)
        assert len(images) == 4
        passed = [kind for kind, image in images.items() if task.verify(item, image).passed]
        assert passed == []


def test_what_cannot_be_made_is_left_out(monkeypatch):
    task = get_task("maze")
    monkeypatch.setattr(Maze, "input_image", Maze.render)
    assert corrupted(task.sample(0, 4)[0], []) == {}
