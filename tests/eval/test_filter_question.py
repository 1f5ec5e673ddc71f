"""What filter=judge asks: the images in the order in which judges are trained on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from uni_train.data_gen.judge_rows import judge_samples
from uni_train.data_gen.maze.task import Maze
from uni_train.eval.benchmark import Ask, Sample
from uni_train.eval.filter_question import FilterQuestion
from uni_train.eval.task_benchmark import item_case
from uni_train.models.pictures import decode_png


@pytest.mark.parametrize("reply", ["Final Answer: YES", "It is wrong.\nFinal Answer: NO"])
def test_a_row_of_a_judge_is_what_the_filter_asks(reply: str) -> None:
    task = Maze("nano")
    items = task.generate(8, 3, "train", 0)
    row = next(iter(judge_samples(task, items, 0)))
    asked: list[Any] = []

    async def ask(prompt: str, images: Sequence[bytes] = (), *, parse: Callable[[str], Any], **_: Any) -> Any:
        asked.append((prompt, tuple(images)))
        return parse(reply)

    case = item_case(items[0])
    sample = Sample(Ask(case, "normal", 0, 0), prompt=case.prompt, parts=(row.images["image"],))
    verdict = asyncio.run(FilterQuestion([case]).judge(sample, ask))
    ((prompt, images),) = asked
    assert prompt == row.row["prompt"][0]["content"]
    for shown, trained in zip(images, row.images.values(), strict=True):
        assert np.array_equal(decode_png(shown), decode_png(trained))
    assert verdict.passed == reply.endswith("YES")
