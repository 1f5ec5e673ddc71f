"""The verifiers' reward as other trainers use it: any image gets a number, and a wrong item is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from uni_train.core.errors import UserError
from uni_train.data_gen.export import filled_levels
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.rewards import task_reward

MAZE = Maze("nano")
(ITEM,) = MAZE.generate(1, 4, "train", 0)
TARGET = MAZE.render(ITEM)


def rewards(*images: Any, item: Any = ITEM) -> list[float | None]:
    return task_reward([ITEM.prompt] * len(images), list(images), item=[item] * len(images), level=[4] * len(images))


def test_images_and_items_come_in_any_form(tmp_path: Path) -> None:
    file = tmp_path / "target.png"
    Image.fromarray(TARGET).save(file)
    with Image.open(file) as opened:
        assert rewards(TARGET, opened, file, str(file), Image.fromarray(TARGET).convert("RGBA")) == [1] * 5
    wrong = MAZE.input_image(ITEM)
    for item in (ITEM, ITEM.to_dict(), json.dumps(ITEM.to_dict() | {"image_seed": 3})):
        assert rewards(TARGET, wrong, item=item) == [1, 0]
    assert rewards(TARGET, item=None) == [None]


@pytest.mark.parametrize("name", TASKS.names())
def test_whatever_a_model_draws_gets_a_number(name: str, tmp_path: Path) -> None:
    task = get_task(name)
    item = task.generate(1, filled_levels(task, "test")[0], "test", 0)[0]
    (tmp_path / "damaged.png").write_bytes(b"\x89PNG and no more")
    shapes = [(0, 0, 3), (1, 1, 3), (3, 24, 24), (7, 300, 4), (24, 24), (24,), (2, 3, 4, 3)]
    noise = np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)
    images = [*(np.zeros(shape, np.uint8) for shape in shapes), noise, None, tmp_path / "damaged.png", tmp_path, "\0",
              "Here is the image.", "x" * 100_000, Image.new("F", (4, 4)), Image.new("1", (9, 9))]  # fmt: skip
    assert task_reward([""] * len(images), images, item=[item] * len(images)) == [0] * len(images)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"item": None}, "got 2 completions and no items"),
        ({"item": [ITEM]}, "got 2 completions and 1 items"),
        ({"item": [ITEM, ITEM.to_dict() | {"task": "mase"}]}, 'row 1: item .* did you mean "maze"'),
        ({"item": [ITEM.to_dict() | {"facts": {}}, ITEM]}, "row 0: item .* facts do not describe a maze"),
        ({"item": [ITEM, "{"]}, "row 1: item .* not JSON"),
        ({"item": [ITEM, {"id": "x"}]}, "row 1: item .*KeyError"),
        ({"completions": [TARGET / 255, TARGET]}, "row 0: the completion is an array of float64"),
        ({"completions": [TARGET, [TARGET]]}, "row 1: the completion is a list"),
    ],
)
def test_what_a_trainer_gets_wrong_is_named_with_its_row(arguments: dict[str, Any], message: str) -> None:
    columns = {"prompts": ["", ""], "completions": [TARGET, TARGET], "item": [ITEM, ITEM], **arguments}
    with pytest.raises(UserError, match=message):
        task_reward(**columns)


def test_importing_it_loads_no_torch() -> None:
    heavy = "torch lightning numpy PIL pyarrow pydantic"
    code = f"import sys, uni_train.rewards; assert not set('{heavy}'.split()) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
