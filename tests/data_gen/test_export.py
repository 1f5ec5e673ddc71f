"""`data make` and `data show`: what is in the folder, and that nothing of anybody else's is replaced."""

import json

import numpy as np
import pytest

from uni_train.core.errors import DataError
from uni_train.data_gen.audit import audit_file
from uni_train.data_gen.export import make
from uni_train.data_gen.jsonl import read_items
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.show import contact_sheet

image_module = pytest.importorskip("PIL.Image")


def test_a_nano_folder_holds_rows_items_and_verified_pictures(tmp_path):
    out = tmp_path / "data"
    summary = make("mapping", 2, 4, "test", 3, "nano", out, force=False)
    assert (summary.items, summary.pairs, summary.images) == (8, 4, 8)
    assert sorted(entry.name for entry in out.iterdir()) == ["images", "items.jsonl", "mapping2.jsonl"]
    assert all(row.status == "ok" for row in audit_file(out / "mapping2.jsonl"))
    items = read_items(out / "items.jsonl")
    assert items == get_task("mapping").generate(4, 2, "test", 3)
    for item, line in zip(items, (out / "items.jsonl").read_text().splitlines(), strict=True):
        picture = np.asarray(image_module.open(out / json.loads(line)["image"]))
        assert get_task("mapping").verify(item, picture).passed
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_the_same_command_writes_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        make("maths", 3, 5, "train", 1, "nano", tmp_path / name, force=False)
    for file in (tmp_path / "a").rglob("*.*"):
        assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()


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
