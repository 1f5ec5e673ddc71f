"""Wrong images that every built-in verifier refuses."""

import pytest

from uni_train.data_gen.corruptions import corrupted
from uni_train.data_gen.registry import TASKS, filled_levels, get_task


@pytest.mark.parametrize("name", TASKS.names())
def test_no_corrupted_image_passes(name):
    task = get_task(name)
    level = filled_levels(task, "test")[0]
    items = task.generate(4, level, "test", 0)
    for item in items:
        images = corrupted(item, items, seed=5)
        assert len(images) == 4
        passed = [kind for kind, image in images.items() if task.verify(item, image).passed]
        assert passed == []
