"""What answers in turns depend on: moves, each board, and the images that the model reads back.

    python bench/steps.py runs/sft_steps/seed0/stages/00-sft/model [--n 100] [--split test] [--levels 1,2,3]

Sliding puzzles in nano's style. An answer is right if its last board is, and every board before it. Later boards: those
behind right ones. In the place of its own image the model also reads the puzzle as it was given, or the image that was
drawn for another puzzle. Lazy: the best of the task's lazy ways.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import row, table
from uni_train.core.seeds import rng
from uni_train.data_gen.puzzle import END, MARK, Puzzle
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.models.bagel import interleaving
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Request
from uni_train.models.load import build_model, model_config
from uni_train.stages.cpu import prepare_cpu

Shown = Callable[[Sequence[Request]], list[np.ndarray]]
"""Requests whose only image was drawn just now -> the images that are read in their place."""


def answers(
    model: BagelUnified, task: Puzzle, items: Sequence[Item], shown: Shown | None
) -> list[list[str | np.ndarray]]:
    requests = [Request(item.id, item.prompt, (shown_image(task, item),), seed=n) for n, item in enumerate(items)]
    if shown is None:
        return model.compose(requests)
    own = interleaving._with_images

    def changed(model: BagelUnified, state: object, drawn: Sequence[Request], style: object) -> object:
        images = shown(drawn)
        others = [replace(one, images=(image,)) for one, image in zip(drawn, images, strict=True)]
        return own(model, state, others, style)  # type: ignore[arg-type]

    with mock.patch.object(interleaving, "_with_images", changed):
        return model.compose(requests)


def shown_image(task: Puzzle, item: Item) -> np.ndarray:
    return task.input_image(item)


def boards(task: Puzzle, item: Item, answer: Sequence[str | np.ndarray]) -> list[bool]:
    """Whether each image is the board that its step leads to."""
    states = [list(state) for state in task.steps(item.facts)][1:]
    images = [part for part in answer if isinstance(part, np.ndarray)]
    if len(images) != len(states):
        return [False] * len(states)
    aims = (replace(item, facts={**item.facts, "solution": state}) for state in states)
    return [task.verify(aim, image).passed for aim, image in zip(aims, images, strict=True)]


def moves_right(task: Puzzle, item: Item, answer: Sequence[str | np.ndarray]) -> bool:
    said = [part.removesuffix(MARK).strip(" .") for part in answer if isinstance(part, str)]
    return said == [*task.moves(item.facts), END]


def lazy_rate(task: Puzzle, items: Sequence[Item]) -> float:
    """The best of the task's lazy ways."""
    states = [task.lazy(item.facts, rng("lazy", item.id)) for item in items]
    right = {name: sum(task.solves(item.facts, tuple(one[name])) for item, one in zip(items, states, strict=True))
             for name in states[0]}  # fmt: skip
    return max(right.values()) / len(items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder of a model that takes turns (recipe sft_steps)")
    parser.add_argument("--n", type=int, default=100, help="puzzles a level")
    parser.add_argument("--split", default="test")
    parser.add_argument("--levels", default="1,2,3")
    chosen = parser.parse_args()
    prepare_cpu("auto")
    config = model_config(chosen.model)
    config = replace(config, sampling=replace(config.sampling, interleaving="chain", max_images=8))
    model, task = build_model(config), get_task("sliding_puzzle", "nano")
    assert isinstance(model, BagelUnified) and isinstance(task, Puzzle)
    heads = (
        "moves right",
        "first board",
        "a board after right ones",
        "answer",
        "reads the puzzle",
        "another's",
        "lazy",
    )
    for line in table("slides", *heads):
        print(line)
    for level in map(int, chosen.levels.split(",")):
        items = task.generate(chosen.n, level, chosen.split, 0)
        given = {item.id: shown_image(task, item) for item in items}
        own = answers(model, task, items, None)
        ways: dict[str, Shown] = {
            "puzzle": lambda drawn, given=given: [given[one.id] for one in drawn],  # type: ignore[misc]
            "other": lambda drawn: [one.images[0] for one in (*drawn[1:], *drawn[:1])],
        }
        right = {"own": [boards(task, item, answer) for item, answer in zip(items, own, strict=True)]}
        for name, way in ways.items():
            made = answers(model, task, items, way)
            right[name] = [boards(task, item, answer) for item, answer in zip(items, made, strict=True)]
        later = [now for one in right["own"] for n, now in enumerate(one) if n and all(one[:n])]
        whole = {name: sum(map(all, some)) / len(items) for name, some in right.items()}
        said = sum(moves_right(task, item, answer) for item, answer in zip(items, own, strict=True)) / len(items)
        first = sum(one[0] for one in right["own"]) / len(items)
        cells = (said, first, sum(later) / max(1, len(later)), *whole.values(), lazy_rate(task, items))
        print(row(len(right["own"][0]), *(f"{cell:.2f}" for cell in cells)))


if __name__ == "__main__":
    main()
