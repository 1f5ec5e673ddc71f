"""OpenAI's Responses API; images come by its tool `image_generation`. It has no seed."""

from __future__ import annotations

from typing import Any

from uni_train.models.base import Request
from uni_train.models.dialects import Call, Dialect, Endpoint, Message, Skill, dialect, given, messages, size
from uni_train.models.pictures import data_url, encode_png

_TEXT = '{"output": [{"content": [{"type": "output_text", "text": "..."}]}]}'
_IMAGE = '{"output": [{"type": "image_generation_call", "result": "BASE64"}]}'


@dialect("responses")
class Responses(Dialect):
    """/responses."""

    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        settings = endpoint.settings
        turns = [{"role": turn.role, "content": _content(turn)} for turn in messages(skill, request, endpoint)]
        body: dict[str, Any] = {"model": endpoint.model, "input": turns}
        if skill in ("draw", "compose"):
            body["tools"] = [{"type": "image_generation"} | size(request)]
        if skill == "draw":
            body["tool_choice"] = {"type": "image_generation"}
        body |= given({"temperature": settings.temperature, "max_output_tokens": settings.max_tokens})
        return Call("responses", body, _IMAGE if skill == "draw" else _TEXT)


def _content(turn: Message) -> Any:
    if not turn.images:
        return turn.text
    urls = (data_url(encode_png(image)) for image in turn.images)
    shown = ({"type": "input_image", "image_url": url, "detail": "auto"} for url in urls)
    return [*shown, {"type": "input_text", "text": turn.text}]
