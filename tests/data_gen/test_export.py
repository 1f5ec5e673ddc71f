"""`data make` and `data show`: what is in the folder, and that nothing of anybody else's is replaced."""

import json

import numpy as np
import pytest

from uni_train.core.errors import DataError
from uni_train.data_gen.audit import audit_file
from uni_train.data_gen.export import make
from uni_train.data_gen.jsonl import read_items
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.registry import get_task, task_of
from uni_train.data_gen.show import contact_sheet

image_module = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    ("task", "levels", "n", "counts", "names"),
    [
        ("mapping", 2, 4, (8, 4, 8), ["images", "items.jsonl", "mapping2.jsonl"]),
        (Maze("classic", 256), (2, 3), 2, (4, 0, 8), ["images", "inputs", "items.jsonl"]),
    ],
    ids=["mapping", "maze"],
)
def test_a_folder_holds_rows_items_and_verified_pictures_and_the_same_bytes_again(
    tmp_path, task, levels, n, counts, names
):
    out = tmp_path / "data"
    for folder in (out, tmp_path / "again"):
        summary = make(task, levels, n, "test", 3, "nano", folder, force=False)
        assert (summary.items, summary.pairs, summary.images) == counts
    assert sorted(entry.name for entry in out.iterdir()) == names
    assert all(row.status == "ok" for file in out.glob("mapping*.jsonl") for row in audit_file(file))
    lines = (out / "items.jsonl").read_text().splitlines()
    for item, row in zip(read_items(out / "items.jsonl"), map(json.loads, lines), strict=True):
        assert task_of(item).verify(item, np.asarray(image_module.open(out / row["image"]))).passed
        if "input_image" in row:
            given = np.asarray(image_module.open(out / row["input_image"]))
            assert np.array_equal(given, task_of(item).input_image(item))
    for file in out.rglob("*.*"):
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(out)).read_bytes()
    assert {entry.name for entry in tmp_path.iterdir()} == {"data", "again"}


def test_nothing_is_overwritten_without_force_and_nothing_foreign_with_it(tmp_path):
    def write(seed, force, out=tmp_path / "data"):
        make("maths", 1, 3, "train", seed, "everyday", out, force=force)
        return (out / "math_1.jsonl").read_text()

    before = write(0, False)
    with pytest.raises(DataError, match="is not empty: choose another folder, or use force"):
        write(1, False)
    assert write(1, True) != before
    (tmp_path / "data" / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match=r"holds thesis\.tex, which is not generated data"):
        write(1, True)
    assert (tmp_path / "data" / "thesis.tex").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write(0, False, tmp_path / "file" / "data")
    with pytest.raises(DataError, match="is a file: choose a folder"):
        write(0, False, tmp_path / "file")


def test_a_contact_sheet_shows_targets_and_text():
    sheet = contact_sheet(get_task("maths", "nano").generate(3, 2, "train", 0))
    assert sheet.dtype == np.uint8 and sheet.ndim == 3 and sheet.shape[2] == 3
    colours = np.abs(sheet.astype(int) - sheet.astype(int).mean(-1, keepdims=True)).max(-1)
    assert (colours > 30).sum() > 200  # sprites are coloured, text is grey
    assert contact_sheet(get_task("mapping", "everyday").generate(1, 1, "train", 0)).std() > 0
    with pytest.raises(DataError, match="no items to show"):
        contact_sheet([])
