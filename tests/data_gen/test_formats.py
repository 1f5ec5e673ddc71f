"""Parquet and WebDataset: what is read back is what the folder holds."""

import io
import json
import tarfile

import numpy as np
import pytest
from pyarrow import parquet

from uni_train.core.errors import DataError
from uni_train.data_gen import formats
from uni_train.data_gen.export import make
from uni_train.data_gen.jsonl import read_items
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item

image_module = pytest.importorskip("PIL.Image")


def pixels(data):
    with image_module.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


@pytest.fixture(params=[("maths", 2), (Maze("nano"), 4)], ids=["maths", "maze"])
def written(request, tmp_path, monkeypatch):
    """The same draw as a folder, and what makes it in another format."""
    monkeypatch.setattr(formats, "ROW_GROUP", 2)
    monkeypatch.setattr(formats, "SHARD", 2)
    task, level = request.param

    def write(format):
        return make(task, level, 5, "test", 3, "nano", tmp_path / format, False, format)

    return read_items(write("folder").path / "items.jsonl"), write


def test_parquet_has_items_and_images_as_datasets_stores_them(written):
    items, write = written
    made = write("parquet")
    assert [path.name for path in made.path.iterdir()] == ["test.parquet"] and made.published is None
    file = parquet.ParquetFile(made.path / "test.parquet")
    assert file.num_row_groups == 3
    features = json.loads(file.schema_arrow.metadata[b"huggingface"])["info"]["features"]
    assert features.keys() == set(file.schema_arrow.names)
    assert {name for name, one in features.items() if one["_type"] == "Image"} == {"image", "input_image"}
    rows = file.read().to_pylist()
    assert [Item.from_dict(json.loads(row["item"])) for row in rows] == items
    for row, item in zip(rows, items, strict=True):
        assert (row["id"], row["level"], row["prompt"]) == (item.id, item.level, item.prompt)
        assert task_of(item).verify(item, pixels(row["image"]["bytes"])).passed
        assert (row["input_image"] is None) == (task_of(item).input_image(item) is None)
    assert made.images == sum(row[name] is not None for row in rows for name in ("image", "input_image"))


def test_webdataset_has_shards_of_samples_by_key(written):
    items, write = written
    made = write("webdataset")
    shards = sorted(made.path.iterdir())
    assert [path.name for path in shards] == [f"test-{number:06d}.tar" for number in range(3)]
    samples = {}
    for shard in shards:
        with tarfile.open(shard) as tar:
            for member in tar:
                key, _, name = member.name.partition(".")
                samples.setdefault(key, {})[name] = tar.extractfile(member).read()
    assert [Item.from_dict(json.loads(sample["json"])) for sample in samples.values()] == items
    for sample, item in zip(samples.values(), items, strict=True):
        assert task_of(item).verify(item, pixels(sample["target.png"])).passed
        input_image = task_of(item).input_image(item)
        assert ("input.png" in sample) == (input_image is not None)
        assert input_image is None or (pixels(sample["input.png"]) == input_image).all()


@pytest.mark.parametrize("format", ["parquet", "webdataset"])
def test_a_failure_in_the_middle_leaves_nothing(format, tmp_path, monkeypatch):
    draws = iter(range(3))
    monkeypatch.setattr(Maze, "render", lambda self, item, seed: np.full((4, 4, 3), next(draws), np.uint8))
    with pytest.raises((StopIteration, RuntimeError, DataError)):
        make(Maze("nano"), 4, 5, "test", 3, "nano", tmp_path / "out", False, format)
    assert list(tmp_path.iterdir()) == []
