from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from uni_train.core.errors import UserError
from uni_train.models import completions
from uni_train.models.base import SkillMissing
from uni_train.models.pictures import data_url, encode_png
from uni_train.serving.protocol import (
    MOST_AT_ONCE,
    BadRequest,
    Limits,
    Refusal,
    Reply,
    Task,
    chat_chunks,
    chat_reply,
    drawing_reply,
    error_body,
    parse_chat,
    parse_drawing,
    refusal_of,
)

PICTURE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
PNG = encode_png(PICTURE)
TEXT = {"type": "text", "text": "what"}
LIMITS = Limits(images=2, megapixels=40e-6, words=80)


def chat_tasks(body: Any) -> list[Task]:
    return parse_chat(body).tasks()


def drawing_tasks(body: Any, images: Sequence[bytes] = ()) -> list[Task]:
    return parse_drawing(body, images).tasks()


def chat(content: Any = "what is it", **more: Any) -> dict[str, Any]:
    return {"model": "nano", "messages": [{"role": "user", "content": content}], **more}


def test_a_conversation_becomes_one_request() -> None:
    parts = [shown(data_url(PNG)), TEXT]
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [*parts, *parts]}]
    (task,) = chat_tasks({"messages": messages, "seed": 7, "temperature": 0.5, "max_tokens": 9})
    assert task.request.prompt == "be brief\n\nwhat\nwhat"
    assert len(task.request.images) == 2 and all(np.array_equal(one, PICTURE) for one in task.request.images)
    assert (task.skill, task.request.seed, task.temperature, task.max_tokens) == ("answer", 7, 0.5, 9)


def test_what_stands_beside_the_protocol_and_seeds_that_follow() -> None:
    assert [task.request.seed for task in chat_tasks(chat(n=3, seed=5))] == [5, 6, 7]
    assert [task.request.seed for task in drawing_tasks({"prompt": "x", "n": "2", "seed": "9"})] == [9, 10]
    (task,) = chat_tasks(chat(skill="think", thinking=True, max_completion_tokens=3))
    assert (task.skill, task.thinking, task.max_tokens) == ("think", True, 3)
    (task,) = drawing_tasks({"prompt": "x", "thought": "red", "size": "64x32"}, [PNG])
    assert task.request.thought == "red" and task.request.size == (32, 64)  # height, width
    assert np.array_equal(task.request.images[0], PICTURE)
    assert drawing_tasks({"prompt": "x", "thinking": "true", "size": "auto"})[0].thinking


def test_a_reply_of_texts_and_images_is_read_as_it_was_written() -> None:
    (task,) = chat_tasks(chat(modalities=["image", "text"]))
    assert task.skill == "compose" and chat_tasks(chat(modalities=["text", "audio"]))[0].skill == "answer"
    for more in ({"thinking": True}, {"skill": "think"}):
        with pytest.raises(BadRequest, match="leave thinking and skill out"):
            parse_chat(chat(modalities=["image"], **more))
    for body in (chat_reply("nano", [Reply(parts=("first", PNG, "last"))]), chat_chunks("nano", [Reply(parts=())])[0]):
        assert isinstance(body["choices"][0].get("message", body["choices"][0].get("delta"))["content"], list)
    completion = completions.read(chat_reply("nano", [Reply(parts=("first", PNG, "last"))]))
    assert completion is not None and completion.parts == ("first", data_url(PNG), "last")


def shown(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    ("parse", "body", "message"),
    [
        (parse_chat, [], "JSON object"),
        (parse_chat, chat(""), "hold no text"),
        (parse_chat, chat([{"type": "input_audio"}]), "type: Input should be 'text' or 'image_url'"),
        (parse_chat, chat([{"type": "image_url"}]), "image 1 is no data URL"),
        (parse_chat, chat([shown("https://example.org/x.png")]), "no data URL"),
        (parse_chat, chat([shown("data:image/png;base64,%%%")]), "no valid base64"),
        (parse_chat, chat([shown("data:image/png;base64,AAAA"), TEXT]), "image 1: no image"),
        (parse_chat, chat(n=MOST_AT_ONCE + 1), "n: Input should be less than or equal to 16"),
        (parse_chat, chat(temperature=3), "temperature: Input should be less than or equal to 2"),
        (parse_chat, chat(skill="sing"), "skill: Input should be 'answer' or 'think'"),
        (parse_drawing, {"prompt": "x", "size": "big"}, "size: String should match pattern"),
        (parse_drawing, {"prompt": "x", "response_format": "url"}, "response_format: Input should be 'b64_json'"),
        (parse_drawing, {"prompt": "x", "mask": "given"}, "mask: "),
        (parse_drawing, {"prompt": "x", "thought": "y", "thinking": True}, "not both"),
    ],
)
def test_what_cannot_be_meant_is_said(parse: Callable[[Any], Any], body: Any, message: str) -> None:
    """Values of the wrong type or range are in bench/bad_inputs_corpus.py, for every key."""
    with pytest.raises(UserError) as caught:
        parse(body).tasks()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "images", "size", "message"),
    [
        ("word " * 80, 2, None, ""),
        ("word " * 81, 0, None, "the prompt has 81 words; this server takes 80"),
        ("x" * 641, 0, None, "the prompt has 81 words"),  # eight letters count as a word
        ("日" * 641, 0, None, "the prompt has 81 words"),
        ("x", 3, None, "the request has 3 images; this server takes 2"),
        ("x", 0, "7x6", "size is more than 4e-05 million pixels"),
    ],
)
def test_what_passes_a_limit_is_said(words: str, images: int, size: str | None, message: str) -> None:
    parts = [shown(data_url(PNG))] * images
    ways: list[tuple[Any, ...]] = [(parse_drawing, {"prompt": words, "size": size}, [PNG] * images)]
    ways += [(parse_chat, chat([*parts, {"type": "text", "text": words}]))] if size is None else []
    for parse, *body in ways:
        if message:
            with pytest.raises(BadRequest, match=message):
                parse(*body, limits=LIMITS)
        else:
            assert len(parse(*body, limits=LIMITS).images) == images
    with pytest.raises(BadRequest, match="the prompt has 82 words in 2 replies"):
        parse_chat(chat("word " * 41, n=2), LIMITS)


def test_pixels_are_counted_before_they_are_unpacked() -> None:
    """A picture of a gigapixel that is a few bytes: its head tells."""
    head = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + (32_000).to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
    bomb = head + zlib.crc32(head[12:]).to_bytes(4, "big") + b"\0\0\0\1IDATx\0\0\0\0"
    with pytest.raises(BadRequest, match="far too many pixels"):
        parse_drawing({"prompt": "x"}, [bomb])
    with pytest.raises(BadRequest, match=r"the images have 0\.0 million pixels together; this server takes 4e-05"):
        parse_drawing({"prompt": "x"}, [encode_png(np.zeros((7, 6, 3), np.uint8))], LIMITS)


def test_replies_and_refusals() -> None:
    replies = [Reply("yes", prompt_tokens=5, completion_tokens=2), Reply("no", prompt_tokens=5, completion_tokens=3)]
    body = chat_reply("nano", replies)
    assert [one["message"]["content"] for one in body["choices"]] == ["yes", "no"]
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    first, last = chat_chunks("nano", replies)
    assert [one["delta"]["content"] for one in first["choices"]] == ["yes", "no"]
    assert {one["finish_reason"] for one in last["choices"]} == {"stop"}
    (drawn,) = drawing_reply([Reply(image=PNG, thought="red")])["data"]
    assert drawn["thought"] == "red" and json.dumps(drawn)
    missing = refusal_of(SkillMissing("nano", "look"))
    assert (missing.status, missing.code) == (400, "skill_missing") and "nano cannot look" in missing.message
    assert error_body(Refusal(500, "x"))["error"]["type"] == "server_error"
    assert error_body(refusal_of(BadRequest("x")))["error"]["type"] == "invalid_request_error"
