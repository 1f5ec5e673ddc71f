"""OpenAI's chat completions; replies of some servers hold images (OpenRouter's `modalities`)."""

from __future__ import annotations

from typing import Any

from uni_train.models.base import Request
from uni_train.models.dialects import Call, Dialect, Endpoint, Message, Skill, dialect, given, messages
from uni_train.models.pictures import data_url, encode_png

_TEXT = '{"choices": [{"message": {"content": "..."}}]}'
_IMAGE = '{"choices": [{"message": {"images": [{"image_url": {"url": "data:image/png;base64,..."}}]}}]}'


@dialect("chat")
class Chat(Dialect):
    """/chat/completions."""

    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        settings = endpoint.settings
        turns = [{"role": turn.role, "content": _content(turn)} for turn in messages(skill, request, endpoint)]
        body: dict[str, Any] = {"model": endpoint.model, "messages": turns, "seed": request.seed}
        if skill in ("draw", "compose"):
            body["modalities"] = ["image", "text"]
        elif skill == "think" and endpoint.ours:
            body["skill"] = skill
        body |= given({"temperature": settings.temperature, "max_tokens": settings.max_tokens})
        return Call("chat/completions", body, _IMAGE if skill == "draw" else _TEXT)


def _content(turn: Message) -> Any:
    if not turn.images:
        return turn.text
    urls = ({"url": data_url(encode_png(image))} for image in turn.images)
    return [*({"type": "image_url", "image_url": url} for url in urls), {"type": "text", "text": turn.text}]
