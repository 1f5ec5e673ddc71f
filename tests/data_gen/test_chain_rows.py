"""Puzzles step by step: rows that `sft` reads, moves and images that belong together, and images that lead on."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.data_gen.test_judge_rows import pixels
from uni_train.cli.main import uni_train
from uni_train.core.errors import DataError
from uni_train.data_gen.chain_rows import chain_samples
from uni_train.data_gen.puzzle import END, MARK, Puzzle
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.training.data import edit
from uni_train.training.data.rows import open_rows

PUZZLES = [name for name in TASKS.names() if issubclass(TASKS.get(name), Puzzle)]


@pytest.mark.parametrize("name", PUZZLES)
def test_each_move_is_before_its_image_and_each_image_leads_on(name: str) -> None:
    task = TASKS.get(name)("nano")
    items = task.generate(2, task.possible_levels[0], "train", 0)
    for item, sample in zip(items, chain_samples(task, items, 0), strict=True):
        frames = [pixels(data) for data in sample.images.values()]
        texts = sample.row["output_text_list"]
        assert len(texts) == len(frames) and texts[-1] == END and all(text.endswith(f" {MARK}") for text in texts[:-1])
        assert {text.removesuffix(f" {MARK}") for text in texts[:-1]} <= {*task.move_phrases()}
        assert np.array_equal(frames[0], task.input_image(item)) and task.verify(item, frames[-1]).passed
        assert all(task.leads_on(item, frames[1:]))
        assert task.leads_on(item, [frames[0], frames[-1], frames[-1]]) == [False, True, True]


def test_steps_back_and_wrong_steps_lead_nowhere() -> None:
    task = get_task("sliding_puzzle", "nano")
    assert isinstance(task, Puzzle)
    item, other = task.generate(2, 2, "train", 0)
    given, first, second, third, last = task.frames(item)
    assert task.leads_on(item, [second, first, third, given, last]) == [True, False, True, False, True]
    assert task.leads_on(item, [task.render(other), 255 - first, last]) == [False, False, True]


def test_rows_are_read_as_interleaved_chains(tmp_path: Path) -> None:
    command = ["data", "make", "--task", "sliding_puzzle", "--level", "2", "--style", "nano", "--format", "chain"]
    result = CliRunner().invoke(uni_train, [*command, "--n", "3", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0 and "3 questions, 15 images" in result.output, result.output
    rows = open_rows(str(tmp_path / "out"), held_out=True)
    assert len(rows) == 3
    turns = edit.parse(rows[0], random.Random(0)).turns
    learned = [(turn.learn, turn.image is None) for turn in turns]
    assert learned == [(False, False), (False, True), *[(True, True), (True, False)] * 4, (True, True)]


def test_a_task_without_steps_is_refused() -> None:
    task = get_task("maths", "nano")
    with pytest.raises(DataError, match="maths has no steps to draw one by one"):
        next(chain_samples(task, task.generate(1, 1, "train", 0), 0))
