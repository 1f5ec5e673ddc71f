"""Data as people have it, without a form: layouts of folders, names of columns, and what is said of bad input."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.training.data.test_forms import pixels, png, row, said
from uni_train.core.errors import UserError
from uni_train.models.base import Example
from uni_train.training.data import inferred
from uni_train.training.data.rows import Rows, open_rows


def write(folder: Path, **files: str | bytes) -> Path:
    """Files by their paths, with __ for a slash."""
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def examples(path: Path, bad: str = "error") -> list[tuple[str, str]]:
    """Prompt and number of the image of every row, as `bytes`."""
    known = {pixels(seed).tobytes(): str(seed) for seed in range(4)}
    rows = Rows(open_rows(str(path)), inferred.parse, bad, lambda example: len(example.prompt), 100)
    drawn = [rows.draw(i, random.Random(0)) for i in range(len(rows))]
    return [(example.prompt, known[example.target.tobytes()]) for example in drawn]


IMAGES: dict[str, str | bytes] = {"a.png": png(1), "b.png": png(2)}
LAYOUTS: dict[str, dict[str, str | bytes]] = {
    "metadata.jsonl": {
        "metadata.jsonl": '{"file_name": "a.png", "text": "one"}\n{"file_name": "more/b.png", "text": "two"}\n',
        "a.png": png(1), "more__b.png": png(2),
    },
    "metadata.csv": {
        "train__metadata.csv": 'file_name,caption\na.png,one\nb.png,"two"\n',
        "train__a.png": png(1), "train__b.png": png(2), "train__unlisted.png": png(3),
    },
    "captions beside images": {
        "a.png": png(1), "a.txt": "one\n", "10_cats__b.png": png(2), "10_cats__b.txt": "two", ".hidden__c.png": png(3),
    },
    "jsonl": IMAGES | {
        "rows.jsonl": '{"images": ["a.png"], "prompt": "one"}\n{"image": {"path": "b.png"}, "captions": ["two"]}\n',
    },
    "capitals": {
        "A.JSONL": '{"image": "a.PNG", "text": "one"}', "b.CSV": "image,text\nb.png,two\n",
        "a.PNG": png(1), "b.png": png(2),
    },
    "packed": IMAGES | {
        "a.jsonl.gz": gzip.compress(b'{"image": "a.png", "text": "one"}'),
        "b.csv.gz": gzip.compress(b"image,text\nb.png,two\n"),
    },
    "kohya": {"a.PNG": png(1), "a.TXT": "one", "b.png": png(2), "b.caption": "two"},
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_is_read_as_it_is_laid_out(tmp_path: Path, layout: str) -> None:
    assert sorted(examples(write(tmp_path, **LAYOUTS[layout]))) == [("one", "1"), ("two", "2")]


@pytest.mark.parametrize("suffix", [".jfif", ".apng", ".TIF", ".webp", ".bmp", ".pgm", ".avif", ".heic", ".tga"])
def test_images_that_this_machine_decodes_are_read_and_others_are_counted(tmp_path: Path, suffix: str) -> None:
    write(tmp_path, **{f"a{suffix}": b"", "a.txt": "one", "b.png": png(2), "b.txt": "two"})
    image, kind = tmp_path / f"a{suffix}", Image.registered_extensions().get(suffix.lower())
    if kind is not None:
        Image.fromarray(pixels(1)).save(image, kind)
    rows = open_rows(str(tmp_path))
    if kind is None or suffix == ".tga":  # which is no format that is decoded
        assert len(rows) == 1 and rows.remarks == [f"{tmp_path}: not read: 1 {suffix}, 1 .txt"]
    else:
        assert len(rows) == 2 and not rows.remarks
        assert inferred.parse(rows[0], random.Random(0)).target.shape == (6, 8, 3)


def test_a_parquet_file_of_the_datasets_library_needs_no_form(tmp_path: Path) -> None:
    images = [{"bytes": png(i), "path": f"{i}.png"} for i in (1, 2)]
    pq.write_table(pa.table({"image": images, "text": ["one", "two"], "label": [0, 1]}), tmp_path / "a.parquet")
    assert examples(tmp_path) == [("one", "1"), ("two", "2")]


def of(example: Example) -> tuple[str, bool, bool]:
    """The instruction, and whether picture 1 is shown and picture 2 drawn."""
    shown = len(example.images) == 1 and np.array_equal(example.images[0], pixels(1))
    return example.prompt, shown, np.array_equal(example.target, pixels(2))


@pytest.mark.parametrize(
    "values",
    [
        {"input_image": png(1), "image": png(2), "instruction": "bend"},
        {"source_image": png(1), "target_image": png(2), "prompt": "bend", "image": None},
        {"image": png(1), "target_image": png(2), "instruction": ["bend"]},
        {"images": [png(1)], "image": png(2), "prompt": "bend"},
    ],
)
def test_two_images_and_an_instruction_are_an_edit(values: dict[str, object]) -> None:
    assert of(inferred.parse(row(**values), random.Random(0))) == ("bend", True, True)


def test_released_forms_are_known_by_their_keys() -> None:
    chain = inferred.parse(row(image_list=[png(0), png(1)], instruction_list=["bend"]), random.Random(0))
    assert said(chain) == [("picture 0", False), ("bend", False), ("picture 1", True)]
    talk = [{"from": "human", "value": "<image> what?"}, {"from": "gpt", "value": "noise"}]
    spoken = inferred.parse(row(images=[png(0)], conversations=talk), random.Random(0))
    assert said(spoken) == [("picture 0", False), ("what?", False), ("noise", True)]


ONE = {"a.png": png(1), "a.txt": "one"}
BAD = [
    ({"a.png": png(1), "sub__b.png": png(2)}, "has 2 images without captions; the first is a.png\n.*a.txt"),
    (ONE | {"b.png": png(2), "c.png": png(2)}, "b.png: has no caption b.txt; 2 of 3 images have none"),
    (ONE | {"a.jpg": png(2)}, "a.jpg and a.png share a.txt"),
    (ONE | {"a.txt": " \n"}, "a.png: caption is empty"),
    (ONE | {"a.txt": b"caf\xe9"}, "a.png: a.txt: line 1: not UTF-8"),
    (ONE | {"a.txt": "x" * 10_000}, "a.png: has 10000 tokens, more than the 100"),
    (ONE | {"a.png": png(1)[:60]}, "a.png: .*cannot be read as an image"),
    ({"a.zip": b"PK", "readme.md": "x"}, "has no training data: it holds 1 .md, 1 .zip files\nUnpack the archives"),
    ({"metadata.csv": "file_name,text\na.png,one, two\n"}, "line 2: has more fields than the first line names"),
    ({"metadata.csv": "file_name,text\na.png,one\n"}, "line 2: file_name: .*a.png: no such file"),
    ({"metadata.csv": "file_name;text\na.png;one\n"}, "prompt; its keys: file_name;text"),
    (
        {"metadata.jsonl": '{"file_name": "a.png", "label": 1}'},
        "line 1: has no captions, .* keys: file_name, label",
    ),
]


@pytest.mark.parametrize(("files", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_is_named_with_what_to_do(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(UserError, match=message):
        examples(write(tmp_path, **files))


def test_images_without_captions_can_be_left_out(tmp_path: Path) -> None:
    assert examples(write(tmp_path, **ONE, **{"b.png": png(2)}), "skip") == [("one", "1"), ("one", "1")]
