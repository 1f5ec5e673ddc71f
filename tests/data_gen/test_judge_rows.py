"""Rows that train a judge: every label is the verifier's, and trl gets what it takes."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from pyarrow import parquet

from uni_train.cli.main import uni_train
from uni_train.core.errors import DataError
from uni_train.data_gen.export import filled_levels, make
from uni_train.data_gen.judge_rows import JUDGE, judge_samples
from uni_train.data_gen.maths.task import Maths
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.puzzle import Puzzle
from uni_train.data_gen.questions import image_question
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.data_gen.sprite_task import SEEN
from uni_train.data_gen.task import Check, Item, Task, Verdict
from uni_train.eval.reading import yes_no


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def task_of_name(name: str) -> Task:
    """With small images, where there is a choice."""
    kind = TASKS.get(name)
    return kind("nano") if issubclass(kind, Puzzle | Maze) else get_task(name)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", TASKS.names())
def test_every_label_is_proved_and_every_reply_says_it(name: str) -> None:
    task = task_of_name(name)
    items = task.generate(16, filled_levels(task, "validation")[0], "validation", 0)
    rows = list(judge_samples(task, items, 0))
    assert {row.row["verdict"] for row in rows} == {"pass", "fail"} and len(rows) > 12
    for sample in rows:
        row, item = sample.row, Item.from_dict(json.loads(sample.row["item"]))
        *given, image = map(pixels, sample.images.values())
        assert task.verify(item, image).status == row["verdict"], row["kind"]
        assert yes_no(row["completion"][0]["content"]) == (row["verdict"] == "pass")
        assert row["prompt"] == [{"role": "user", "content": image_question(item.prompt, name)}]
        assert len(given) == (task.input_image(item) is not None)
        assert all(np.array_equal(one, task.input_image(item)) for one in given)
    assert [one.images for one in judge_samples(task, items, 0)] == [one.images for one in rows]
    assert [one.images for one in judge_samples(task, items, 1)] != [one.images for one in rows]


def test_near_misses_are_balanced_and_what_is_seen_is_said() -> None:
    task = Maths()
    rows = [one.row for one in judge_samples(task, task.generate(1000, 1, "train", 0), 0)]
    kinds = Counter(row["kind"] for row in rows)
    for kind, share in (("other object", "other object"), ("other count", "other count"), ("right", "same")):
        assert abs(kinds[kind] / 1000 - SEEN[share]) < 0.1
    assert 0.4 < sum(row["verdict"] == "pass" for row in rows) / 1000 < 0.6
    facts = [(json.loads(row["item"])["facts"], row["kind"], row["completion"][0]["content"]) for row in rows]
    right = [text for known, kind, text in facts if kind == "right" and known["count"] == 3]
    assert right and all(text.count(f"3 {known['plural']} .") == 2 for known, kind, text in facts
                         if kind == "right" and known["count"] == 3)  # fmt: skip
    assert any("Seen nothing ." in text for _, kind, text in facts if kind == "blank")


def test_datasets_loads_them_with_images_and_messages(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    typed = ["data", "make", "--task", "maze", "--level", "3", "--style", "nano", "--n", "12", "--split", "test"]
    done = CliRunner().invoke(uni_train, [*typed, "--format", "judge", "--out", f"{tmp_path}/rows"])
    assert done.exit_code == 0, done.output
    file = tmp_path / "rows/test.parquet"
    table = parquet.read_table(file).to_pylist()
    counts = Counter(row["verdict"] for row in table)
    assert f"right: {counts['pass']} (" in done.output and f"wrong: {counts['fail']} (" in done.output
    rows = datasets.load_dataset("parquet", data_files=str(file), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(rows) == len(table) == 12
    for row, stored in zip(rows, table, strict=True):
        assert [np.asarray(image).tobytes() for image in row["images"]] == [
            pixels(image["bytes"]).tobytes() for image in stored["images"]
        ]
        assert row["prompt"] == stored["prompt"] and row["completion"] == stored["completion"]


class Lenient(Maths):
    """A task of which every image is right."""

    name = "lenient"

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        return Verdict((Check("any", "pass"),))


@pytest.mark.parametrize(
    ("task", "world", "n", "message"),
    [
        ("maths", "everyday", 9, "maths1/train/.* has no image to judge: leave out the world"),
        ("maths", "nano", 1, "none of 1 images is proved"),
        (Lenient(), "nano", 9, "lenient: none of . images is proved wrong, so no judge can learn from them"),
    ],
)
def test_without_right_and_wrong_images_nothing_is_written(
    task: Any, world: str, n: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        make(task, 1, n, "train", 0, world, tmp_path / "rows", False, JUDGE)
    assert [*tmp_path.iterdir()] == []
