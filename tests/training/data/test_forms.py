"""Rows of every form as examples, and what is said of rows that are none."""

from __future__ import annotations

import base64
import io
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from uni_train.data_gen.reading_limits import Unreadable
from uni_train.data_gen.registry import get_task
from uni_train.errors import UserError
from uni_train.models.base import Example
from uni_train.training.data import conversations, edit, items, text_to_image
from uni_train.training.data.rows import BadRow, Row, Rows, open_rows
from uni_train.training.steps import StepDataset


def png(seed: int, size: tuple[int, int] = (6, 8)) -> bytes:
    data = io.BytesIO()
    Image.fromarray(pixels(seed, size)).save(data, "PNG")
    return data.getvalue()


def pixels(seed: int, size: tuple[int, int] = (6, 8)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


def row(folder: Path = Path(), **values) -> Row:
    return Row(values, folder)


def said(example: Example) -> list[tuple[str, bool]]:
    """Each turn's text, or which picture it is, and whether it is learned."""
    known = {pixels(seed).tobytes(): f"picture {seed}" for seed in range(9)}
    return [(turn.text if turn.image is None else known[turn.image.tobytes()], turn.learn) for turn in example.turns]


def test_text_to_image_draws_one_of_the_captions():
    one = row(image=png(1), captions=json.dumps({"short": "a cat", "long": "a cat on a mat", "none": None}))
    examples = [text_to_image.parse(one, random.Random(seed)) for seed in range(20)]
    assert {example.prompt for example in examples} == {"a cat", "a cat on a mat"}
    assert all(np.array_equal(example.target, pixels(1)) for example in examples)
    library = row(image={"bytes": png(1), "path": None}, captions={"a": "as the datasets library stores it"})
    assert np.array_equal(text_to_image.parse(library, random.Random(0)).target, pixels(1))


def test_an_edit_is_one_or_two_steps_of_the_chain():
    steps = [["make it red", "red, please"], ["add a hat."], "remove it"]
    one = row(image_list=[png(i) for i in range(4)], instruction_list=steps)
    seen = {tuple(said(edit.parse(one, random.Random(seed)))) for seed in range(300)}
    assert (("picture 0", False), ("red, please", False), ("picture 1", True)) in seen
    assert (("picture 2", False), ("remove it", False), ("picture 3", True)) in seen
    two = (("picture 1", False), ("add a hat.", False), ("picture 2", True), ("remove it", False), ("picture 3", True))
    assert two in seen and (("picture 1", False), ("add a hat. remove it.", False), ("picture 3", True)) in seen
    assert len(seen) == 4 + (2 * 2 + 2), "steps 0 (two phrasings), 1, 2; chains 0-2 and 1-3, apart and as one"


def test_an_edit_row_with_texts_is_an_interleaved_chain_of_thought():
    texts = ["I draw the path.", "It ends at B."]
    one = row(image_list=[png(0), png(1)], instruction_list=["Where does the path end?"], output_text_list=texts)
    asked, learned = ["picture 0", "Where does the path end?"], ["I draw the path.", "picture 1", "It ends at B."]
    assert said(edit.parse(one, random.Random(0))) == [(t, False) for t in asked] + [(t, True) for t in learned]


def test_conversations_show_images_where_the_marks_are(tmp_path):
    for i in range(2):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    spoken = [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "<image>\nand <image> differ how?"},
        {"from": "gpt", "value": "In colour."},
        {"from": "human", "value": "Sure?"},
        {"from": "gpt", "value": "Yes."},
    ]
    example = conversations.parse(row(tmp_path, image=["0.png", "1.png"], conversations=spoken), random.Random(0))
    asked = [(text, False) for text in ("Be brief.", "picture 0", "and", "picture 1", "differ how?")]
    assert said(example) == [*asked, ("In colour.", True), ("Sure?", False), ("Yes.", True)]
    words = conversations.parse(row(conversations=spoken[3:]), random.Random(0))
    assert said(words) == [("Sure?", False), ("Yes.", True)]


def test_an_item_is_seen_in_symmetric_views_that_the_draw_alone_decides():
    task = get_task("maze", "nano")
    (item,) = task.sample(0, 4)
    one = row(**item.to_dict(), input_image=png(1), image=png(2))
    parse = items.parser(["image", "thought"], symmetries=True)
    examples = [parse(one, random.Random(seed)) for seed in range(40)]
    assert 8 < len({example.images[0].tobytes() for example in examples}) <= 16
    views = [task.symmetric(item, random.Random(seed)) for seed in range(40)]
    for example, view in zip(examples, views, strict=True):
        assert np.array_equal(example.images[0], task.input_image(view)) and example.thought == view.thought
        assert np.array_equal(example.target, task.render(view))
    for other in (row(prompt="a", image=png(1)), row(**get_task("maths", "nano").sample(0, 1)[0].to_dict())):
        with pytest.raises(BadRow, match=r"augment=symmetries: (the row is no item of ours|maths has no symmetries)"):
            parse(other, random.Random(0))


def test_symmetric_views_depend_on_seed_and_update_but_not_on_ranks(tmp_path):
    mazes = get_task("maze", "nano").generate(6, 4, "train", 0)
    (tmp_path / "items.jsonl").write_text("\n".join(json.dumps(item.to_dict()) for item in mazes))
    views = items.parser(["image"], symmetries=True)
    rows = Rows(open_rows(str(tmp_path / "items.jsonl")), views, "error", lambda example: 1, 1)

    def targets(step: int, ranks: int, seed: int = 3) -> list[bytes]:
        options = {"rows": 4, "updates": 9, "seed": seed, "world_size": ranks}
        each = [
            StepDataset(lambda examples, _: examples, {"a": rows}, lambda _: {"a": 1.0}, rank=rank, **options)[step]
            for rank in range(ranks)
        ]
        return sorted(example.target.tobytes() for (micro,) in each for example in micro.content)

    assert targets(7, 1) == targets(7, 2) == targets(7, 4)
    assert targets(7, 1) != targets(7, 1, seed=4)


def test_items_learn_what_is_asked_of_them(tmp_path):
    (tmp_path / "a.png").write_bytes(png(3))
    one = row(tmp_path, prompt="Draw it", thought="2 + 1 = 3.", answer="3 cats", image="a.png", images=[png(4)])
    drawn = items.parser(["image"])(one, random.Random(0))
    assert (drawn.prompt, drawn.thought, drawn.answer) == ("Draw it", None, None)
    assert np.array_equal(drawn.target, pixels(3)) and np.array_equal(drawn.images[0], pixels(4))
    thinks = items.parser(["thought"])(one, random.Random(0))
    assert (thinks.thought, thinks.target) == ("2 + 1 = 3.", None)
    assert items.parser(["answer", "thought"])(one, random.Random(0)).answer == "3 cats"


CHAIN = {"image_list": [png(0)] * 2, "instruction_list": ["a"]}
DRAWN = {"image": png(0), "captions": '{"a": "b"}'}
BAD = [
    (
        text_to_image.parse,
        {"image": png(0), "label": 3},
        "captions, caption, text or prompt; its keys: image, label",
    ),
    (text_to_image.parse, {"text": "a", "url": "b"}, "has no image, images or file_name; its keys: text, url"),
    (text_to_image.parse, {"text": "a", "images": [png(0)] * 2}, "images has 2 images, but a caption is of one"),
    (text_to_image.parse, {"text": ["a", ""], "image": png(0)}, "text 2 is empty"),
    (edit.parse, {"instruction": "a", "input_image": png(0)}, "has no target_image, image"),
    (edit.parse, {"instruction": "a", "image": png(0)}, "has no input_image, source_image or images; its keys"),
    (edit.parse, {"input_image": png(0), "image": png(1)}, "has no instruction, captions"),
    (text_to_image.parse, DRAWN | {"captions": "{a cat"}, "captions is not JSON"),
    (text_to_image.parse, DRAWN | {"captions": '{"a": " "}'}, "caption a is empty"),
    (text_to_image.parse, DRAWN | {"captions": "{}"}, "has no captions"),
    (text_to_image.parse, DRAWN | {"image": png(0)[:60]}, "image: it cannot be read as an image"),
    (text_to_image.parse, DRAWN | {"image": b"GIF89a"}, "image: no image that can be read"),
    (text_to_image.parse, DRAWN | {"image": 5}, "image is neither the bytes of an image nor a path"),
    (edit.parse, CHAIN | {"image_list": [png(0)]}, "there is no edit"),
    (edit.parse, CHAIN | {"instruction_list": [[]]}, "instruction 1 of instruction_list has no"),
    (edit.parse, CHAIN | {"instruction_list": ["a", "b"]}, "has 2 images, but instructions for 2"),
    (edit.parse, CHAIN | {"output_text_list": 5}, "output_text_list must be a list"),
    (edit.parse, CHAIN | {"output_text_list": []}, "has 2 images and 1 instructions; with 0 texts"),
    (edit.parse, CHAIN | {"image_list": [png(0)], "output_text_list": []}, "output_text_list is empty"),
    (edit.parse, CHAIN | {"image_list": [png(0)] * 3, "output_text_list": ["a"]}, "may be 2 images"),
    (edit.parse, CHAIN | {"instruction_list": ["a", "b"], "output_text_list": ["a"]}, "and 1 instruction"),
    (edit.parse, {"image_list": [], "instruction_list": []}, "lists that are not empty"),
    (conversations.parse, {"video": "a.mp4", "conversations": []}, "is about a video"),
    (conversations.parse, {"conversations": [{"from": "human", "value": "hm"}]}, "nothing to learn"),
    (conversations.parse, {"conversations": [{"from": "bot", "value": "hm"}]}, "turn 1 of conversations is not from"),
    (conversations.parse, {"conversations": [{"from": "human", "value": "<image>"}]}, "more <image> than the 0 images"),
    (conversations.parse, {"image": "no.png", "conversations": []}, "no.png: no such file"),
    (items.parser(["image"]), {"prompt": "a"}, "has no image"),
    (items.parser(["thought"]), {"thought": "a"}, "has no prompt"),
]


@pytest.mark.parametrize(("parse", "values", "reason"), BAD, ids=[reason[:30] for *_, reason in BAD])
def test_a_bad_row_says_what_is_wrong_with_it(parse, values, reason):
    with pytest.raises(BadRow, match=reason):
        parse(row(**values), random.Random(0))


@pytest.mark.parametrize(
    ("parse", "values"),
    [
        (conversations.parse, {"conversations": [{"from": "gpt", "value": "a"}]}),
        (edit.parse, CHAIN),
        (items.parser(["answer"]), {"prompt": "a", "answer": "b"}),
        (text_to_image.parse, DRAWN),
    ],
)
def test_columns_of_other_rows_that_are_null_are_none(parse, values):
    def parsed(**columns) -> tuple:
        example = parse(row(**columns), random.Random(0))
        return said(example), example.prompt, example.thought, example.answer, len(example.images)

    nothing = dict.fromkeys(("video", "image", "images", "input_image", "output_text_list", "thought", "other"))
    assert parsed(**nothing | values) == parsed(**values)


@pytest.mark.parametrize(
    ("parse", "key", "values"),
    [
        (conversations.parse, "image", {"conversations": []}),
        (edit.parse, "image_list", {"instruction_list": ["a"]}),
        (items.parser(["answer"]), "input_image", {"prompt": "a", "answer": "b"}),
        (items.parser(["answer"]), "images", {"prompt": "a", "answer": "b"}),
        (text_to_image.parse, "image", {"captions": {"a": "b"}}),
    ],
)
def test_base64_in_place_of_a_path_is_not_printed(tmp_path, parse, key, values):
    text = base64.b64encode(png(0)).decode()
    for given in (text, f"data:image/png;base64,{text}", {"bytes": None, "path": text}):
        values = values | {key: [given] * 2 if key in ("images", "image_list") else given}
        with pytest.raises(BadRow, match=r"\(\d+ characters\): no such file") as error:
            parse(row(tmp_path, **values), random.Random(0))
        assert text[40:80] not in str(error.value)


def test_a_picture_of_400_million_pixels_is_a_bad_row(tmp_path):
    Image.new("1", (20_000, 20_000)).save(tmp_path / "huge.png")
    with pytest.raises(BadRow, match="too large"):
        text_to_image.parse(row(image=(tmp_path / "huge.png").read_bytes(), captions='{"a": "b"}'), random.Random(0))


def prompts(rows) -> list[str]:
    return [rows[i].values["prompt"] for i in range(len(rows))]


def test_files_and_folders_are_one_list_of_rows(tmp_path):
    (tmp_path / "shards/b").mkdir(parents=True)
    for name, first in (("shards/b/0.parquet", 3), ("shards/1.parquet", 0)):
        table = pa.table({"prompt": [str(first + i) for i in range(3)]})
        pq.write_table(table, tmp_path / name, row_group_size=2)
    (tmp_path / "more.jsonl").write_text('{"prompt": "6"}\n\n  \n{"prompt": "7"}')
    rows = open_rows([str(tmp_path / "shards"), str(tmp_path / "more.jsonl")])
    assert prompts(rows) == list("01234567")
    places = [rows.where(i).removeprefix(f"{tmp_path}/") for i in (0, 5, 7)]
    assert places == ["shards/1.parquet, row 1", "shards/b/0.parquet, row 3", "more.jsonl, line 4"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.jsonl", None, "no such file"),
        ("empty.jsonl", b"\n\n", "there are no rows"),
        ("names.csv", b"a,b\n", "there are no rows"),
        ("rows.csv", b"a,b\nc\xff,d\n", "line 2: not UTF-8"),
        ("rows.json", b"[]", "must be .jsonl, .csv or .parquet"),
        ("rows.zip", b"PK", "is an archive\nUnpack it"),
        ("rows.parquet", b"PAR1 no", "no Parquet file that can be read"),
        ("folder", b"", "has no training data: it is empty"),
    ],
)
def test_files_that_hold_no_rows_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises((UserError, Unreadable), match=f"{name}.*{message}"):
        open_rows(str(path))


def test_a_damaged_row_group_is_named(tmp_path):
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"prompt": [str(i) * 50 for i in range(100)]}), file, compression="zstd")
    data = bytearray(file.read_bytes())
    data[20:60] = bytes(40)
    file.write_bytes(data)
    with pytest.raises(UserError, match=r"rows\.parquet: row group 1 is damaged"):
        open_rows(str(file))[0]


def some_bad(tmp_path: Path, bad: str) -> Rows:
    """Five rows, of which the second is no JSON, the third has no prompt and the last one is too long."""
    lines = ['{"prompt": "a", "answer": "b"}', "{", '{"answer": "b"}', '{"prompt": "d", "answer": "b"}']
    (tmp_path / "rows.jsonl").write_text("\n".join([*lines, '{"prompt": "eeeee", "answer": "b"}']))
    rows = open_rows(str(tmp_path / "rows.jsonl"))
    return Rows(rows, items.parser(["answer"]), bad, tokens=lambda example: len(example.prompt), most_tokens=4)


@pytest.mark.parametrize(
    ("index", "reason"), [(1, "line 2: is not a JSON"), (2, "line 3: has no prompt"), (4, "line 5: has 5 tokens")]
)
def test_a_bad_row_ends_the_training_with_its_file_and_number(tmp_path, index, reason):
    with pytest.raises(UserError, match=rf"rows\.jsonl, {reason}") as caught:
        some_bad(tmp_path, "error").draw(index, random.Random(0))
    assert "data.bad_rows=skip" in str(caught.value)


def test_bad_rows_are_skipped_and_counted_if_asked(tmp_path):
    rows = some_bad(tmp_path, "skip")
    assert [rows.draw(i, random.Random(0)).prompt for i in range(5)] == ["a", "d", "d", "d", "a"]
    assert [where.split(", ")[1] for where in rows.skipped] == ["line 2", "line 3", "line 5"]
    all_bad = Rows(rows.rows, items.parser(["image"]), "skip", len, 4)
    with pytest.raises(UserError, match=r"all 5 rows are bad; .*line \d: has no image"):
        all_bad.draw(3, random.Random(0))
