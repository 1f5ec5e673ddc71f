"""Google's own protocol for Gemini, `generateContent`: images go in and come out between the texts of a reply.

Google's address with OpenAI's protocol draws from text alone. https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from uni_train.models.base import Request
from uni_train.models.dialects import SEED_BITS, Call, Dialect, Endpoint, Message, Skill, dialect, given, messages
from uni_train.models.pictures import encode_png

_TEXT = '{"candidates": [{"content": {"parts": [{"text": "..."}]}}]}'
_IMAGE = '{"candidates": [{"content": {"parts": [{"inlineData": {"mimeType": "image/png", "data": "BASE64"}}]}}]}'
_RATIOS = ((1, 1), (2, 3), (3, 2), (3, 4), (4, 3), (4, 5), (5, 4), (9, 16), (16, 9), (21, 9))
"""Width to height, of images that it draws."""


@dialect("gemini")
class Gemini(Dialect):
    """/models/MODEL:generateContent."""

    optional = ("seed", "imageConfig", "responseModalities", "temperature")

    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        settings, turns = endpoint.settings, messages(skill, request, endpoint)
        limits = {"temperature": settings.temperature, "maxOutputTokens": settings.max_tokens}
        parameters: dict[str, Any] = {"seed": request.seed & SEED_BITS, **given(limits)}
        if skill in ("draw", "compose"):
            parameters["responseModalities"] = ["TEXT", "IMAGE"]
            if request.size is not None:
                parameters["imageConfig"] = {"aspectRatio": _ratio(*request.size)}
        told = [turn for turn in turns if turn.role != "system"]
        body: dict[str, Any] = {"contents": [{"role": _role(turn), "parts": _parts(turn)} for turn in told]}
        if len(told) < len(turns):
            body["systemInstruction"] = {"parts": _parts(turns[0])}
        body["generationConfig"] = parameters
        expected = _IMAGE if skill == "draw" else _TEXT
        return Call(f"models/{endpoint.model}:generateContent", body, expected, parameters=parameters)


def _role(turn: Message) -> str:
    return "model" if turn.role == "assistant" else turn.role


def _parts(turn: Message) -> list[dict[str, Any]]:
    datas = (b64encode(encode_png(image)).decode() for image in turn.images)
    return [*({"inlineData": {"mimeType": "image/png", "data": data}} for data in datas), {"text": turn.text}]


def _ratio(height: int, width: int) -> str:
    """The nearest of those that it knows, "3:2"."""
    return "{}:{}".format(*min(_RATIOS, key=lambda ratio: abs(ratio[0] * height / (ratio[1] * width) - 1)))
