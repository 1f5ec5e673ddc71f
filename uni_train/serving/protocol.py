"""OpenAI's protocol to requests of a UnifiedModel and back: chat completions, drawing, editing.

What is asked beside the protocol goes in the body (`extra_body` of OpenAI's client):

    skill: "think"    a chat completion is the thought before drawing, not an answer
    thinking: true    think first: before the answer, or before the image (the thought comes back beside it)
    thought: "..."    draw by this thought
    seed: 7           what depends on chance depends on the seed alone

Nothing is fetched: images come inside the body, as data URLs or files.
"""

from __future__ import annotations

import base64
import io
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from uni_train.data_gen.reading_limits import FORMATS
from uni_train.errors import UserError
from uni_train.models.base import Request, SkillMissing
from uni_train.models.pictures import decode_data_url, decode_picture
from uni_train.serving.limits import Limits, words_of

Skill = Literal["think", "draw", "answer"]
MOST_AT_ONCE = 16
"""Most replies to one request (`n`)."""
_DEFAULT = Limits()


class BadRequest(UserError):
    """The body cannot be meant; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing that the model is to do.

    Attributes:
        thinking: think first. temperature, max_tokens: replace the model's own; None: those.
    """

    skill: Skill
    request: Request
    thinking: bool = False
    temperature: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a task: a text or an image (PNG), the thought where one was asked for, and tokens of texts."""

    text: str | None = None
    image: bytes | None = None
    thought: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a task was not done: an HTTP status (400: the request's fault, 500: ours) and a message."""

    status: int
    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that keeps to the limits, its images still encoded.

    Attributes:
        task: the first of its tasks, without images. images: encoded files. seeds: one a task.
    """

    task: Task
    images: tuple[bytes, ...]
    seeds: range

    def tasks(self) -> list[Task]:
        """Its tasks, with images. Raises UserError for an image that is none."""
        shown = tuple(decode_picture(data, f"image {i}") for i, data in enumerate(self.images, start=1))
        return [replace(self.task, request=replace(self.task.request, images=shown, seed=seed)) for seed in self.seeds]


def chat_asked(body: Any, limits: Limits = _DEFAULT) -> Asked:
    """What /v1/chat/completions is asked: `n` of one conversation, with seeds that follow each other.

    A conversation is read as one prompt: its texts in order, a blank line between messages, its images before them.
    """
    body = _object(body)
    texts: list[str] = []
    images: list[bytes] = []
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list with at least one message")
    for message in messages:
        if not isinstance(message, Mapping):
            raise BadRequest("a message must be an object with role and content")
        words, shown = _content(message.get("content"), len(images))
        texts += [words] if words else []
        images += shown
    skill = body.get("skill", "answer")
    if skill not in ("answer", "think"):
        raise BadRequest(f"skill must be answer or think, not {skill!r}")
    lengths = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
    max_tokens = next((value for value in lengths if value is not None), None)
    if max_tokens is not None and (not _whole(max_tokens) or max_tokens < 1):
        raise BadRequest("max_tokens must be a whole number from 1 on")
    temperature = body.get("temperature")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        raise BadRequest("temperature must be a number")
    if temperature is not None and not 0 <= temperature <= 2:
        raise BadRequest("temperature must lie between 0 and 2")
    prompt = "\n\n".join(texts)
    if not prompt.strip():
        raise BadRequest("the messages hold no text")
    task = Task(skill, Request("chat", prompt), _flag(body, "thinking"), temperature, max_tokens)
    seeds = _seeds(body)
    _check(prompt, len(seeds), images, limits)
    return Asked(task, tuple(images), seeds)


def drawing_asked(body: Any, images: Sequence[bytes] = (), limits: Limits = _DEFAULT) -> Asked:
    """What /v1/images/generations is asked, and with `images` (encoded files) /v1/images/edits."""
    body = _object(body)
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadRequest("prompt must be a text")
    if body.get("response_format", "b64_json") != "b64_json":
        raise BadRequest("images come as response_format=b64_json alone: this server keeps none")
    if body.get("mask") is not None:
        raise BadRequest("masks are not supported: say in the prompt what to change")
    thought, thinking = body.get("thought"), _flag(body, "thinking")
    if thought is not None and not isinstance(thought, str):
        raise BadRequest("thought must be a text")
    if thought is not None and thinking:
        raise BadRequest("give a thought, or ask for one with thinking, but not both")
    size = _size(body.get("size"))
    if size is not None and size[0] * size[1] > limits.pixels:
        raise BadRequest(f"size is more than {limits.megapixels:g} million pixels, which is this server's limit")
    task = Task("draw", Request("picture", prompt, (), thought, size=size), thinking)
    seeds = _seeds(body)
    _check(f"{prompt} {thought or ''}", len(seeds), images, limits)
    return Asked(task, tuple(images), seeds)


def chat_reply(name: str, replies: Sequence[Reply]) -> dict[str, Any]:
    """The body that answers /v1/chat/completions."""
    choices = [
        {"index": i, "message": {"role": "assistant", "content": one.text}, "finish_reason": "stop"}
        for i, one in enumerate(replies)
    ]
    head = {"id": "chatcmpl-0", "object": "chat.completion", "created": int(time.time()), "model": name}
    return {**head, "choices": choices, "usage": _usage(replies)}


def chat_chunks(name: str, replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """The same as a stream: the model writes a batch at once, so that each text is one chunk."""
    head = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": int(time.time()), "model": name}
    texts = [
        {"index": i, "delta": {"role": "assistant", "content": one.text}, "finish_reason": None}
        for i, one in enumerate(replies)
    ]
    ends = [{"index": i, "delta": {}, "finish_reason": "stop"} for i in range(len(replies))]
    return [{**head, "choices": texts}, {**head, "choices": ends, "usage": _usage(replies)}]


def drawing_reply(replies: Sequence[Reply]) -> dict[str, Any]:
    """The body that answers /v1/images/generations and /v1/images/edits."""
    data = []
    for one in replies:
        assert one.image is not None
        thought = {} if one.thought is None else {"thought": one.thought}
        data.append({"b64_json": base64.b64encode(one.image).decode(), **thought})
    return {"created": int(time.time()), "data": data}


def error_body(refusal: Refusal) -> dict[str, Any]:
    """As OpenAI's clients expect errors."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}}


def refusal_of(error: UserError) -> Refusal:
    """What a model says that it cannot do, as the client's fault: another request can be answered."""
    return Refusal(400, str(error), "skill_missing" if isinstance(error, SkillMissing) else None)


def _check(text: str, n: int, images: Sequence[bytes], limits: Limits) -> None:
    """Raises BadRequest for what passes a limit. Images are known by their heads."""
    words = n * words_of(text)
    if words > limits.words:
        times = f" in {n} replies" if n > 1 else ""
        raise BadRequest(f"the prompt has {words:,} words{times}; this server takes {limits.words:,}")
    if len(images) > limits.images:
        raise BadRequest(f"the request has {len(images):,} images; this server takes {limits.images:,}")
    pixels = sum(_pixels(data) for data in images)
    if pixels > limits.pixels:
        raise BadRequest(
            f"the images have {pixels / 1e6:,.1f} million pixels together; this server takes {limits.megapixels:g}"
        )


def _pixels(data: bytes) -> int:
    """0 for what is no image: that is said when it is decoded."""
    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
            warnings.simplefilter("ignore")
            return image.width * image.height
    except Image.DecompressionBombError:
        raise BadRequest("an image has far too many pixels") from None
    except (OSError, ValueError, SyntaxError):
        return 0


def _content(content: Any, before: int) -> tuple[str, list[bytes]]:
    """The text and the encoded images of a message; `before`: images of earlier ones."""
    if content is None or isinstance(content, str):
        return content or "", []
    if not isinstance(content, list):
        raise BadRequest("content must be a text or a list of parts")
    words: list[str] = []
    images: list[bytes] = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            words.append(part["text"])
        elif kind == "image_url":
            given = part.get("image_url")
            url = given.get("url") if isinstance(given, Mapping) else given
            where = f"image {before + len(images) + 1}"
            if not isinstance(url, str):
                raise BadRequest(f"{where} has no url")
            images.append(decode_data_url(url, where))
        else:
            raise BadRequest(f"a part of a message must be text or image_url, not {kind!r}")
    return "\n".join(words), images


def _object(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise BadRequest("the body must be a JSON object")
    return body


def _seeds(body: Mapping[str, Any]) -> range:
    """`n` seeds from `seed` on. Of a form both come as text."""
    seed, n = (_number(body, name, default) for name, default in (("seed", 0), ("n", 1)))
    if not 1 <= n <= MOST_AT_ONCE:
        raise BadRequest(f"n must lie between 1 and {MOST_AT_ONCE}")
    if not 0 <= seed < 2**63:
        raise BadRequest("seed must be a whole number from 0 on")
    return range(seed, seed + n)


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        return int(value)
    if value is None:
        return default
    if not _whole(value):
        raise BadRequest(f"{name} must be a whole number")
    return int(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if value in (True, "true", "True", "1"):
        return True
    if value in (False, None, "false", "False", "0", ""):
        return False
    raise BadRequest(f"{name} must be true or false")


def _size(text: Any) -> tuple[int, int] | None:
    """OpenAI's sizes are width x height; the request's are height, width."""
    if text in (None, "auto"):
        return None
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text) if isinstance(text, str) else None
    if match is None:
        raise BadRequest("size must be WIDTHxHEIGHT or auto")
    return int(match[2]), int(match[1])


def _usage(replies: Sequence[Reply]) -> dict[str, int]:
    prompt = max((one.prompt_tokens for one in replies), default=0)
    completion = sum(one.completion_tokens for one in replies)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
