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

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import LINE_BYTES, Unreadable
from uni_train.data_gen.registry import get_task
from uni_train.models.base import Example
from uni_train.training.data import conversations, edit, inferred, items, text_to_image
from uni_train.training.data import rows as rows_module
from uni_train.training.data.rows import BadRow, Row, Rows, missing, open_rows


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


@pytest.mark.parametrize("image", [png(1), {"bytes": png(1), "path": None}], ids=["bytes", "datasets library"])
@pytest.mark.parametrize("captions", [["a", "b"], {"x": "a", "y": "b", "z": None}, json.dumps({"x": "a", "y": "b"})])
def test_text_to_image_draws_one_of_the_captions_by_the_seed(captions, image):
    examples = [text_to_image.parse(row(image=image, captions=captions), random.Random(i // 2)) for i in range(40)]
    assert {example.prompt for example in examples} == {"a", "b"}
    assert all(np.array_equal(example.target, pixels(1)) for example in examples)
    assert [one.prompt for one in examples[::2]] == [one.prompt for one in examples[1::2]]


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


QUESTION = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}
ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "A cat.", "image": None}]}
DRAWS = {"role": "assistant", "content": [{"type": "text", "text": "Here:"}, {"type": "image"}]}
SHOWN, SPOKEN = [("picture 0", False), ("What?", False)], [("A cat.", True)]
TALKS = [
    ({"images": [png(0)], "messages": [QUESTION, ANSWER]}, SHOWN + SPOKEN),
    ({"image": png(0), "messages": [{"role": "user", "content": "<image>What?"}, ANSWER]}, SHOWN + SPOKEN),
    ({"image": png(0), "messages": [{"role": "user", "content": "What?"}, ANSWER]}, SHOWN + SPOKEN),
    ({"image": png(0), "conversations": [{"from": "human", "value": "What?"}, ANSWER]}, SHOWN + SPOKEN),
    ({"image": png(0), "prompt": [QUESTION], "completion": [ANSWER]}, SHOWN + SPOKEN),
    ({"image": png(0), "prompt": "What?", "completion": "A cat."}, SHOWN + SPOKEN),
    ({"prompt": "What?", "completion": "A cat.", "image": None, "images": []}, SHOWN[1:] + SPOKEN),
    ({"images": [png(0), png(1)], "messages": [QUESTION, DRAWS]}, [*SHOWN, ("Here:", True), ("picture 1", True)]),
    ({"images": [png(0), png(1)],
      "conversations": [{"from": "human", "value": "<image>What?"}, {"from": "gpt", "value": "<image> So!"}]},
     [*SHOWN, ("picture 1", True), ("So!", True)]),
    *(({"messages": [{"role": "user", "content": [{"type": "image", key: given}, {"type": "text", "text": "What?"}]},
                     ANSWER]}, SHOWN + SPOKEN)
      for key in ("image", "url", "path") for given in (png(0), {"bytes": png(0), "path": None})),
    ({"image": png(0), "messages": [{"role": "system", "content": "Hm."}, QUESTION, {**ANSWER, "weight": 0}, ANSWER]},
     [("Hm.", False), *SHOWN, ("A cat.", False), *SPOKEN]),
    ({"image": png(0), "prompt": [QUESTION, ANSWER, {"role": "user", "content": "Sure?"}], "completion": [ANSWER]},
     [*SHOWN, ("A cat.", False), ("Sure?", False), *SPOKEN]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "turns"), TALKS)
def test_messages_are_conversations_and_what_the_assistant_draws_is_learned(values, turns):
    assert said(checked([values]).draw(0, random.Random(0))) == turns


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
    (text_to_image.parse, {"image": png(0), "label": 3}, "caption, text or prompt; its keys: image, label"),
    (text_to_image.parse, {"text": "a", "url": "b"}, "has no image, images or file_name; its keys: text, url"),
    (text_to_image.parse, {"text": "a", "images": [png(0)] * 2}, "images has 2 images, but one is drawn"),
    (text_to_image.parse, {"text": ["a", ""], "image": png(0)}, "text 2 is empty"),
    (edit.parse, {"instruction": "a", "input_image": png(0)}, "has no target_image, .* file_name; its keys"),
    (edit.parse, {"instruction": "a", "image": png(0)}, "has no input_image, .* src_img; its keys: instruction, image"),
    (edit.parse, {"input_image": png(0), "image": png(1)}, "has no instruction, .* prompt; its keys"),
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
    (edit.parse, {"image_list": [], "instruction_list": ["a"]}, "image_list is empty"),
    (edit.parse, CHAIN | {"image_list": "a.png"}, "image_list and instruction_list must be lists"),
    (edit.parse, CHAIN | {"instruction_list": [["turn", None]]}, "instruction 1 of instruction_list is no text"),
    (conversations.parse, {"image": "no.png", "conversations": []}, "no.png: no such file"),
    (conversations.parse, {"messages": '[{"role": "user", "content": "hm"}]'}, "messages is no list of turns"),
    (conversations.parse, {"prompt": 5, "completion": "hm"}, "prompt . completion is no list of turns"),
    (conversations.parse, {"completion": "hm"}, "has no prompt; its keys: completion"),
    (items.parser(["image"]), {"prompt": "a"}, "has no image"),
    (items.parser(["thought"]), {"thought": "a"}, "has no prompt"),
]


MISTALKED = [  # turns, beside two images
    ([("user", "hm")], "nothing to learn: no turn is from the assistant"),
    (
        [("assistant", "<image>"), ("user", "<image>")],
        "turn 1 of KEY is from the assistant .gpt., and nothing is shown before",
    ),
    ([("user", "hm"), ("system", "hm"), ("assistant", "hm")], "turn 2 of KEY is from system, which may only"),
    ([("user", "hm"), ("tool", "hm")], "turn 2 of KEY is not from"),
    ([("user", "<image><image>"), ("assistant", "<image>")], "names 2 images, but has 3 <image>"),
    ([("user", "<image>"), ("assistant", "hm")], "names 2 images, but has 1 <image>"),
    ([("user", " ")], "turn 1 of KEY is empty"),
    ([("user", [])], "turn 1 of KEY has no content: neither a text nor a list"),
    ([("user", None)], "turn 1 of KEY has no content: neither a text nor a list"),
    ([("user", ["hm"])], "part 1 of turn 1 of KEY is neither a text nor an image"),
    ([("user", [{"type": "video", "path": "a"}])], "part 1 of turn 1 of KEY is neither a text nor an image"),
    ([("user", [{"type": "text", "text": ""}])], "part 1 of turn 1 of KEY is empty"),
    ([("user", [{"type": "image", "path": "a.png"}])], "part 1 of turn 1 of KEY: a.png: no such file"),
    ([("user", [{"type": "image"}] * 3)], "names 2 images, but has 3 <image>"),
]


@pytest.mark.parametrize(("turns", "reason"), MISTALKED, ids=[reason[:40] for _, reason in MISTALKED])
def test_a_bad_conversation_says_what_is_wrong_in_every_spelling_of_it(turns, reason):
    names = {"user": "human", "assistant": "gpt"}
    for key, spoken in {
        "conversations": [{"from": names.get(role, role), "value": content} for role, content in turns],
        "messages": [{"role": role, "content": content} for role, content in turns],
    }.items():
        with pytest.raises(BadRow, match=reason.replace("KEY", key)):
            conversations.parse(row(images=[png(0), png(1)], **{key: spoken}), random.Random(0))


@pytest.mark.parametrize("key", [{"tool_calls": [{"id": 1}]}, {"loss": False}, {"weight": 0.5}, {"thinking": "hm"}])
def test_a_turn_has_no_key_that_is_not_read(key):
    spoken = [{"role": "user", "content": "hm"}, {"role": "assistant", "content": "hm", **key}]
    with pytest.raises(BadRow, match=r"turn 2 of messages has (tool_calls|loss|a weight of|thinking).*, which is not"):
        conversations.parse(row(messages=spoken), random.Random(0))


@pytest.mark.parametrize(("parse", "values", "reason"), BAD, ids=[reason[:30] for *_, reason in BAD])
def test_a_bad_row_says_what_is_wrong_with_it(parse, values, reason):
    with pytest.raises(BadRow, match=reason):
        parse(row(**values), random.Random(0))


@pytest.mark.parametrize(
    ("parse", "key", "values"),
    [
        (conversations.parse, "image", {"conversations": []}),
        (edit.parse, "image_list", {"instruction_list": ["a"]}),
        (items.parser(["answer"]), "images", {"prompt": "a", "answer": "b"}),
        (text_to_image.parse, "image", {"captions": {"a": "b"}}),
    ],
)
def test_base64_in_place_of_a_path_is_not_printed(tmp_path, parse, key, values):
    text = base64.b64encode(png(0)).decode()
    for given in (text, f"data:image/png;base64,{text}", {"bytes": None, "path": text}):
        images = [given] * 2 if key in ("images", "image_list") else given
        with pytest.raises(BadRow, match=r"\(\d+ characters\): no such file") as error:
            parse(row(tmp_path, **values, **{key: images}), random.Random(0))
        assert text[40:80] not in str(error.value)


def test_a_picture_of_400_million_pixels_is_a_bad_row(tmp_path):
    Image.new("1", (20_000, 20_000)).save(tmp_path / "huge.png")
    with pytest.raises(BadRow, match="too large"):
        text_to_image.parse(row(image=(tmp_path / "huge.png").read_bytes(), captions='{"a": "b"}'), random.Random(0))


PUBLISHED = {  # columns, as cards and files name them; 0 and 1: the images before and after, 2: the instruction
    "InstructPix2Pix": {"original_image": 0, "original_prompt": "a", "edit_prompt": 2, "edited_image": 1},
    "InstructPix2Pix, 1000": {"input_image": 0, "edit_prompt": 2, "edited_image": 1},
    "MagicBrush, without masks": {"img_id": "7", "source_img": 0, "instruction": 2, "target_img": 1},
    "UltraEdit": {"source_image": 0, "source_caption": "a", "edit_prompt": 2, "edited_image": 1},
    "HQ-Edit": {"input": "a", "input_image": 0, "edit": 2, "inverse-edit": "b", "output": "c", "output_image": 1},
    "OmniEdit": {"omni_edit_id": "7", "src_img": 0, "edited_img": 1, "edited_prompt_list": [2, 2], "width": 8},
    "SEED-Data-Edit": {"source_image": 0, "target_image": 1, "instruction": 2},
    "ImgEdit": {"input_images": [0], "output_images": [1], "prompt": 2},
    "ShareGPT-4o-Image": {"input_prompt": 2, "input_image": [0], "output_image": 1},
    "Pico-Banana": {"local_input_image": 0, "open_image_input_url": "https://a/b.jpg", "text": 2, "output_image": 1},
    "DiffSynth-Studio": {"image": 1, "prompt": 2, "edit_image": [0]},
    "in-house": {"images": [0], "image": 1, "captions": {"a": 2, "b": None}},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_edits_are_read_under_the_names_that_published_data_has(name):
    def filled(value):
        if isinstance(value, dict):
            return {key: filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [filled(one) for one in value]
        return {0: png(0), 1: {"bytes": png(1), "path": "1.png"}, 2: "make it red"}.get(value, value)

    values = {key: filled(value) for key, value in PUBLISHED[name].items()}
    example = checked([values]).draw(0, random.Random(0))
    assert example.prompt == "make it red" and np.array_equal(example.target, pixels(1))
    assert [image.tobytes() for image in example.images] == [pixels(0).tobytes()]


class Listed(list):
    """Values as rows."""

    folder = Path()

    def __getitem__(self, index: int) -> Row:
        return Row(super().__getitem__(index), self.folder)

    def where(self, index: int) -> str:
        return f"row {index}"


def checked(values: list[dict], parse=inferred.parse, folder: Path = Path(), tokens=lambda example: 1) -> Rows:
    listed = Listed(values)
    listed.folder = folder
    rows = Rows(listed, parse, "error", tokens, 100)
    rows.check()
    return rows


TALK = [{"from": "human", "value": "Hm?"}, {"from": "gpt", "value": "Hm."}]
MESSAGES = [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": "Hm."}]
CAPTIONED, EDITED = {"image": "t/1.png", "text": "a"}, {"image": "t/1.png", "text": "a", "input_image": "s/1.png"}
UNREAD = [
    (CAPTIONED, "reference", "s/1.png", "an image"),
    (CAPTIONED, "reference", "not/there.jpg", "an image"),
    (CAPTIONED, "reference", ["s/1.png"], "an image"),
    (CAPTIONED, "reference", {"bytes": None, "path": "s/1.png"}, "an image"),
    (CAPTIONED, "file_name", "2.png", "an image"),
    ({"image": png(0), "text": "a"}, "mask_img", png(1), "an image"),
    ({"image": png(0), "text": "a"}, "reference", {"bytes": png(1), "path": None}, "an image"),
    ({"image": png(0), "text": "a"}, "reference", "s/1.png", "an image"),
    (EDITED, "images", ["s/2.png"], "an image"),
    ({"target_image": "t/1.png", "text": "a", "input_image": "s/1.png"}, "image", "t/2.png", "an image"),
    ({"image_list": ["s/1.png", "t/1.png"], "instruction_list": ["a"]}, "image", "t/2.png", "an image"),
    ({"conversations": TALK}, "target_image", "t/1.png", "an image"),
    ({"conversations": [{"from": "human", "value": "<image>"}, *TALK], "image": "s/1.png"}, "images", ["t/2.png"], ""),
    (CAPTIONED, "chosen", MESSAGES, "a conversation"),
    ({"messages": MESSAGES}, "conversations", TALK, "a conversation"),
    (CAPTIONED, "dialogue", TALK, "a conversation"),
    (EDITED, "chosen", MESSAGES, "a conversation"),
    *(
        (good, key, value, "video or audio")
        for good in (CAPTIONED, EDITED, {"conversations": TALK})
        for key, value in (("video", "a.mp4"), ("videos", ["a.mp4"]), ("audio", b"RIFF"), ("audios", [{"path": "a"}]))
    ),
]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for name in ("s/1", "s/2", "t/1", "t/2", "2"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.png").write_bytes(png(0))
    return tmp_path


@pytest.mark.parametrize(
    ("good", "key", "value", "what"), UNREAD, ids=[f"{key}-{i}" for i, (_, key, *_) in enumerate(UNREAD)]
)
def test_a_key_that_holds_what_no_form_reads_is_a_bad_row(pictures, good, key, value, what):
    checked([good], folder=pictures)
    with pytest.raises(UserError, match=f"row 1: its key {key} holds {what}") as caught:
        checked([good, good | {key: value}], folder=pictures)
    assert "Drop that key, or rename it" in str(caught.value)


def test_items_of_ours_have_no_other_images_than_those_they_name(pictures):
    good = {"prompt": "a", "thought": "b", "image": "t/1.png", "input_image": "s/1.png"}
    for learn in (["thought"], ["image"]):
        checked([good], items.parser(learn), pictures)
        with pytest.raises(UserError, match=r"its key (images|input_image) holds an image"):
            checked([good | {"images": ["s/2.png"]}], items.parser(learn), pictures)


@pytest.mark.parametrize(
    "values",
    [
        CAPTIONED | {"file_name": "1.png", "image_path": "/home/me/t/1.png", "url": "https://a/b.jpg"},
        CAPTIONED | {"embedding": b"no image", "size": [6, 8], "meta": {"role": "x"}, "tags": ["a", "b.c"]},
        CAPTIONED | {"reference": None, "mask": [None], "video": "", "messages": [], "completion": "", "audio": None},
        CAPTIONED | {"input_image": {"bytes": None, "path": None}, "images": [None], "conversations": None},
        {"image": png(0), "text": "a", "file_name": "000123.jpg", "image_path": "coco/000123.jpg"},
        {"conversations": TALK, "image": [None], "images": []},
    ],
)
def test_where_an_image_comes_from_and_null_columns_are_no_images(pictures, values):
    example = checked([values], folder=pictures).draw(0, random.Random(0))
    assert (example.prompt == "a" and np.array_equal(example.target, pixels(0))) or len(example.turns) == 2


def refuses(word: str):
    """Counts tokens, as a model does that cannot read a word."""

    def tokens(example: Example) -> int:
        if any(word in text for text in (example.prompt, *(turn.text or "" for turn in example.turns))):
            raise UserError(f"does not know the word {word}")
        return 1

    return tokens


@pytest.mark.parametrize(
    "values",
    [
        {"image": png(0), "captions": {"short": "good", "long": "odd"}},
        {"image": png(0), "text": [*["good"] * 9, "odd"]},
        {"input_image": png(0), "image": png(1), "edited_prompt_list": ["good", "fine", "odd"]},
        {"image_list": [png(0)] * 2, "instruction_list": [["good", "odd"]]},
        {"image_list": [png(0)] * 4, "instruction_list": [["good", "fine"], "good", ["fine", "good", "odd"]]},
        {"image_list": [png(0)] * 5, "instruction_list": [["a", "b"], ["c", "d"], ["e", "odd"], ["g", "h"]]},
        {"image_list": [png(0)] * 2, "instruction_list": [["good", "odd"]], "output_text_list": ["a"]},
    ],
)
def test_every_phrasing_is_checked_before_the_first_update(values):
    with pytest.raises(UserError, match="row 0: does not know the word odd"):
        checked([values], tokens=refuses("odd"))


@pytest.mark.parametrize("place", range(5))
def test_every_image_of_a_chain_is_checked_and_decoded_once(monkeypatch, place):
    decoded = []
    real = rows_module.decode_picture
    monkeypatch.setattr(rows_module, "decode_picture", lambda *given: decoded.append(given) or real(*given))
    chain = {"image_list": [png(i) for i in range(5)], "instruction_list": [["a", "b", "c"]] * 4}
    rows = checked([chain])
    assert len(decoded) == 5
    decoded.clear()
    rows.draw(0, random.Random(place))
    assert len(decoded) in (2, 3), "of a draw those that it shows or draws, in a chain of one or two steps"
    chain["image_list"][place] = png(place)[:60]
    with pytest.raises(UserError, match=f"image {place + 1} of image_list: it cannot be read"):
        checked([chain])


@pytest.mark.parametrize("cell", ["", "  ", "NaN", "nan", "None", "null", " nan "])
def test_cells_without_a_value_are_missing(tmp_path, cell):
    (tmp_path / "a.png").write_bytes(png(1))
    (tmp_path / "rows.csv").write_text(f"image,captions,text,input_image\na.png,{cell},a cat,{cell}\n{cell},a,a,\n")
    rows = open_rows(str(tmp_path / "rows.csv"))
    example = Rows(rows, inferred.parse, "error", lambda example: 1, 9).draw(0, random.Random(0))
    assert (example.prompt, example.images) == ("a cat", ())
    with pytest.raises(BadRow, match="has no image, images or file_name; its keys: captions, text"):
        inferred.parse(rows[1], random.Random(0))


@pytest.mark.parametrize(
    "value", [None, "", " \n", float("nan"), [], [None], ["", None], {"bytes": None, "path": None}]
)
def test_values_that_are_none_are_missing_in_every_form(value):
    nulls = dict.fromkeys(("video", "image", "images", "input_image", "output_text_list", "thought", "other"))
    forms = [
        (text_to_image.parse, {"image": png(0), "text": "a"}, ("image", "text")),
        (edit.parse, {"input_image": png(0), "image": png(1), "text": "a"}, ("input_image", "image", "text")),
        (edit.parse, CHAIN, ("image_list", "instruction_list")),
        (conversations.parse, {"conversations": TALK}, ("conversations",)),
        (items.parser(["image"]), {"prompt": "a", "image": png(0)}, ("prompt", "image")),
    ]
    for parse, good, keys in forms:
        example, beside = parse(row(**good), random.Random(0)), parse(row(**nulls | good), random.Random(0))
        assert said(beside) == said(example) and beside.prompt == example.prompt
        assert (beside.thought, len(beside.images)) == (None, len(example.images))
        for key in keys:
            with pytest.raises(BadRow, match=rf"{key} is empty|has no .*\b{key}\b"):
                parse(row(**good | {key: value}), random.Random(0))
    assert missing(value) and not missing("None") and not missing(0) and not missing([[]])


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
        ("rows.txt", b"a", "must be .jsonl, .json, .csv, .parquet or .tar"),
        ("rows.tar.gz", b"\x1f\x8b", "is an archive\nUnpack it.*tar without compression is read"),
        ("rows.json", b" [ \n]", "there are no rows"),
        ("rows.json", b'{"a": [{}]}', "is no JSON array of rows\nWrite"),
        ("rows.json", b'[{"a": "]"}, {"b', "breaks off"),
        ("rows.json", b'[{"a": 1}] [{}]', "goes on behind its array, at byte 10"),
        ("rows.json", b'[{"a": 1}, {"a": "%s"}]' % (b"x" * (LINE_BYTES + 1)), "row 2: more than 16 MiB"),
        ("rows.jsonl", b'{}\n\n{"a": "%s"}\n{}' % (b"x" * (LINE_BYTES + 1)), "line 3: more than 16 MiB"),
        ("rows.csv", b'a,b\n1,2\n3,"4\n5,6\n', "line 4: a quote before it is not closed\nSave"),
        ("rows.csv", b"a,b\n1,%s\n" % (b"x" * 200_000), "line 2: not CSV .field larger"),
        ("rows.csv", b"", "there are no rows"),
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
    with pytest.raises((UserError, Unreadable), match=f"(?s){name}.*{message}"):
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
