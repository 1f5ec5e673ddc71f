"""OpenAI's protocol to requests of a UnifiedModel and back: chat completions, drawing, editing.

What is asked beside the protocol goes in the body (`extra_body` of OpenAI's client):

    skill: "think"    a chat completion is the thought before drawing, not an answer
    thinking: true    think first: before the answer, or before the image (the thought comes back beside it)
    thought: "..."    draw by this thought
    modalities        with "image" in it, the reply's content is a list of texts and images, in turns
    seed: 7           what depends on chance depends on the seed alone

Nothing is fetched: images come inside the body, as data URLs or files.
"""

from __future__ import annotations

import base64
import io
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import image_formats
from uni_train.models.base import Request, SkillMissing
from uni_train.models.pictures import data_url, decode_data_url, decode_picture

Skill = Literal["think", "draw", "answer", "compose"]
MOST_AT_ONCE = 16
"""Most replies to one request (`n`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The defaults suit a large model with many clients; options of `serve` replace them.

    Attributes:
        body: MiB of a request's body. images: images of a request. megapixels: million pixels of them together.
        words: of a prompt and its thought, times the replies that are asked for (`n`); a word of more than eight
            letters counts as several, so that text without spaces is limited too.
        seconds: from a request's last byte to its reply. queue: requests at once, the next one meets a 429.
    """

    body: float = 32.0
    images: int = 16
    megapixels: float = 32.0
    words: int = 4000
    seconds: float = 300.0
    queue: int = 256

    @property
    def body_bytes(self) -> int:
        return round(self.body * (1 << 20))

    @property
    def pixels(self) -> int:
        return round(self.megapixels * 1e6)


LETTERS = 8
"""Letters of the longest text that counts as one word."""


def words_of(text: str) -> int:
    """Words of a text as `Limits.words` counts them."""
    return sum(-(-len(word) // LETTERS) for word in text.split())


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
    """What came of a task: a text, an image (PNG), or both in their order; the thought where one was asked for, and
    tokens of texts."""

    text: str | None = None
    image: bytes | None = None
    parts: tuple[str | bytes, ...] | None = None
    thought: str | None = None

    @property
    def content(self) -> str | list[dict[str, Any]] | None:
        """Of a chat message."""
        return self.text if self.parts is None else [*map(_part, self.parts)]

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a task was not done: an HTTP status (400: the request's fault, 500: ours) and a message."""

    status: int
    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedRequest:
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


def _no_bool(value: Any) -> Any:
    return str(value) if isinstance(value, bool) else value


_Whole = Annotated[int, BeforeValidator(_no_bool)]  # of a form it comes as text
_Number = Annotated[float, BeforeValidator(_no_bool)]


class _Body(BaseModel):
    n: _Whole = Field(1, ge=1, le=MOST_AT_ONCE)
    seed: _Whole = Field(0, ge=0, lt=2**63)
    thinking: bool = False

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.n)


class _Url(BaseModel):
    url: str


class _Part(BaseModel):
    type: Literal["text", "image_url"]
    text: str = ""
    image_url: _Url | str | None = None


class _Message(BaseModel):
    content: str | list[_Part] | None = None


class _Chat(_Body):
    messages: list[_Message] = Field(min_length=1)
    skill: Literal["answer", "think"] = "answer"
    modalities: list[str] = ["text"]
    max_completion_tokens: _Whole | None = Field(None, ge=1)
    max_tokens: _Whole | None = Field(None, ge=1)
    temperature: _Number | None = Field(None, ge=0, le=2)


class _Drawing(_Body):
    prompt: str = Field(pattern=r"\S")
    thought: str | None = None
    size: str = Field("auto", pattern=r"^(auto|[1-9]\d{0,4}x[1-9]\d{0,4})$")
    response_format: Literal["b64_json"] = "b64_json"
    mask: None = None  # say in the prompt what to change


B = TypeVar("B", bound=_Body)


def parse_chat(body: Any, limits: Limits = _DEFAULT) -> ParsedRequest:
    """What /v1/chat/completions is asked: `n` of one conversation, with seeds that follow each other.

    A conversation is read as one prompt: its texts in order, a blank line between messages, its images before them.
    """
    values = _read(_Chat, body)
    texts: list[str] = []
    images: list[bytes] = []
    for message in values.messages:
        parts = message.content or []
        if isinstance(parts, str):
            texts.append(parts)
            continue
        texts.append("\n".join(part.text for part in parts if part.type == "text"))
        for part in parts:
            if part.type == "image_url":
                url = part.image_url.url if isinstance(part.image_url, _Url) else part.image_url
                images.append(decode_data_url(url or "", f"image {len(images) + 1}"))
    prompt = "\n\n".join(text for text in texts if text)
    if not prompt.strip():
        raise BadRequest("the messages hold no text")
    most = values.max_completion_tokens or values.max_tokens
    skill: Skill = "compose" if "image" in values.modalities else values.skill
    if skill == "compose" and (values.thinking or values.skill != "answer"):
        raise BadRequest("modalities with image asks for texts and images in turns: leave thinking and skill out")
    task = Task(skill, Request("chat", prompt), values.thinking, values.temperature, most)
    _check(prompt, values.n, images, limits)
    return ParsedRequest(task, tuple(images), values.seeds)


def parse_drawing(body: Any, images: Sequence[bytes] = (), limits: Limits = _DEFAULT) -> ParsedRequest:
    """What /v1/images/generations is asked, and with `images` (encoded files) /v1/images/edits."""
    values = _read(_Drawing, body)
    if values.thought is not None and values.thinking:
        raise BadRequest("give a thought, or ask for one with thinking, but not both")
    size = None
    if values.size != "auto":
        width, height = map(int, values.size.split("x"))
        size = height, width
        if width * height > limits.pixels:
            raise BadRequest(f"size is more than {limits.megapixels:g} million pixels, which is this server's limit")
    task = Task("draw", Request("picture", values.prompt, (), values.thought, size=size), values.thinking)
    _check(f"{values.prompt} {values.thought or ''}", values.n, images, limits)
    return ParsedRequest(task, tuple(images), values.seeds)


def _read(kind: type[B], body: Any) -> B:
    """The keys of a body; null stands for a default. Raises BadRequest, naming the first wrong keys."""
    if not isinstance(body, Mapping):
        raise BadRequest("the body must be a JSON object")
    try:
        return kind.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[:3]
        phrases = (f"{'.'.join(map(str, error['loc']))}: {error['msg'][:200]}" for error in wrong)
        raise BadRequest("; ".join(phrases)) from None


def chat_reply(name: str, replies: Sequence[Reply]) -> dict[str, Any]:
    """The body that answers /v1/chat/completions."""
    choices = [
        {"index": i, "message": {"role": "assistant", "content": reply.content}, "finish_reason": "stop"}
        for i, reply in enumerate(replies)
    ]
    head = {"id": "chatcmpl-0", "object": "chat.completion", "created": int(time.time()), "model": name}
    return {**head, "choices": choices, "usage": _usage(replies)}


def chat_chunks(name: str, replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """The same as a stream: the model writes a batch at once, so that each text is one chunk."""
    head = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": int(time.time()), "model": name}
    texts = [
        {"index": i, "delta": {"role": "assistant", "content": reply.content}, "finish_reason": None}
        for i, reply in enumerate(replies)
    ]
    ends = [{"index": i, "delta": {}, "finish_reason": "stop"} for i in range(len(replies))]
    return [{**head, "choices": texts}, {**head, "choices": ends, "usage": _usage(replies)}]


def _part(part: str | bytes) -> dict[str, Any]:
    """A text or an image of a message, as requests have them."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": data_url(part)}}


def drawing_reply(replies: Sequence[Reply]) -> dict[str, Any]:
    """The body that answers /v1/images/generations and /v1/images/edits."""
    data = []
    for reply in replies:
        assert reply.image is not None
        thought = {} if reply.thought is None else {"thought": reply.thought}
        data.append({"b64_json": base64.b64encode(reply.image).decode(), **thought})
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
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=image_formats()) as image:
            warnings.simplefilter("ignore")
            return image.width * image.height
    except Image.DecompressionBombError:
        raise BadRequest("an image has far too many pixels") from None
    except (OSError, ValueError, SyntaxError):
        return 0


def _usage(replies: Sequence[Reply]) -> dict[str, int]:
    prompt = max((reply.prompt_tokens for reply in replies), default=0)
    completion = sum(reply.completion_tokens for reply in replies)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
