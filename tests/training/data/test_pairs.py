"""Folders of pairs: which references each target has, in which order, and what is said of those that do not fit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.training.data.test_forms import pixels, png
from tests.training.data.test_own_data import write
from uni_train.core.errors import UserError
from uni_train.training.data import inferred, text_to_image
from uni_train.training.data.digest import digests
from uni_train.training.data.pairs import referenced
from uni_train.training.data.rows import Joined, Rows, open_rows

TARGETS: dict[str, str | bytes] = {
    "target__a.png": png(0), "target__a.txt": "one", "target__more__b.jpg": png(1), "target__more__b.txt": "two",
}  # fmt: skip
LAYOUTS: dict[str, tuple[dict[str, str | bytes], list[str], list[list[int]]]] = {
    "one folder": ({"c__a.PNG": png(2), "c__more__b.png": png(3), "c__notes.txt": "x"}, ["c"], [[2], [3]]),
    "two folders": (
        {"d__a.png": png(2), "d__more__b.png": png(3), "c__a.png": png(4), "c__more__b.webp": png(5)},
        ["d", "c"], [[2, 4], [3, 5]],
    ),
    "numbers": (
        {"c__a_2.png": png(3), "c__a_10.png": png(4), "c__a.png": png(2), "c__more__b_0001.png": png(5)},
        ["c"], [[2, 3, 4], [5]],
    ),
    "a target with a number": (
        {"target__a_1.png": png(6), "target__a_1.txt": "three",
         "c__a.png": png(2), "c__a_1.png": png(3), "c__a_1_0.png": png(4), "c__more__b.png": png(5)},
        ["c"], [[2], [3, 4], [5]],
    ),
}  # fmt: skip


def pairs(folder: Path, *references: str) -> Joined:
    return referenced(open_rows(str(folder / "target")), [str(folder / name) for name in references])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_references_are_found_by_the_name_of_their_target(tmp_path: Path, layout: str) -> None:
    files, folders, shown = LAYOUTS[layout]
    joined = pairs(write(tmp_path, **TARGETS, **files), *folders)
    rows = Rows(joined, inferred.parse, "error", lambda example: 1, 9)
    rows.check()
    known = {pixels(seed).tobytes(): seed for seed in range(9)}
    examples = [rows.draw(i, random.Random(0)) for i in range(len(rows))]
    assert [[known[image.tobytes()] for image in example.images] for example in examples] == shown
    assert [known[example.target.tobytes()] for example in examples] == ([0, 1] if len(shown) == 2 else [0, 6, 1])
    assert examples[0].prompt == "one" and not joined.remarks


def test_a_changed_reference_changes_the_digests_and_one_of_no_target_is_counted(tmp_path: Path) -> None:
    write(tmp_path, **TARGETS, **{f"c__{name}.png": png(2) for name in ("a", "more__b", "z", "z_1")})
    joined = pairs(tmp_path, "c")
    assert joined.remarks == [f"{tmp_path}/c: references of no target: {tmp_path}/c/z.png and 1 more"]
    before = digests(joined)
    write(tmp_path, **{"c__a.png": png(3)})
    after = digests(joined)
    assert [file for file in before if before[file] != after[file]] == [str(tmp_path / "c/a.png")]
    assert str(tmp_path / "target/a.txt") in before


BAD: list[tuple[dict[str, str | bytes], list[str], str]] = [
    ({"c__a.png": png(2)}, ["c"], "b.jpg: has no reference .*c/more/b.*; 1 of 2 targets have none there"),
    ({"c__b.png": png(2)}, ["c"], "a.png: has no reference .*c/a.*; 2 of 2 targets"),
    ({"c__a.png": png(2), "c__a.jpg": png(2)}, ["c"], "c/a.jpg is not the only image of this name\nRename"),
    ({"c": png(2)}, ["c"], "references: .*/c is no folder\nGive a folder"),
    ({}, ["gone"], "references: .*/gone is no folder"),
    ({}, ["target"], "references: .*/target holds targets as well\nGive .* beside that of"),
    ({}, ["."], "holds targets as well"),
    ({"target__control__a.png": png(2)}, ["target/control"], "references: .*/target/control holds targets as well"),
    (
        {"target__metadata.jsonl": '{"file_name": "a.png", "text": "x"}'},
        ["target"],
        "to one folder of images with captions, and .*metadata.jsonl is none",
    ),
    ({"c__a.png": png(2)[:60], "c__more__b.png": png(2)}, ["c"], "a.png: .*cannot be read as an image"),
]


@pytest.mark.parametrize(("files", "folders", "message"), BAD, ids=[message[:40] for *_, message in BAD])
def test_folders_that_do_not_fit_are_named(
    tmp_path: Path, files: dict[str, str | bytes], folders: list[str], message: str
) -> None:
    write(tmp_path, **TARGETS, **files)
    with pytest.raises(UserError, match=message):
        Rows(pairs(tmp_path, *folders), inferred.parse, "error", lambda example: 1, 9).check()


def test_one_folder_has_references_and_a_form_that_does_not_read_them_says_so(tmp_path: Path) -> None:
    write(tmp_path, **TARGETS, **LAYOUTS["one folder"][0])
    with pytest.raises(UserError, match=r"belong to one folder .* and 1 more is none\n.*a source of its own"):
        referenced(open_rows([str(tmp_path / "target")] * 2), str(tmp_path / "c"))
    with pytest.raises(UserError, match=r"a\.png: its key input_images holds an image, which is not read"):
        Rows(pairs(tmp_path, "c"), text_to_image.parse, "error", lambda example: 1, 9).check()
