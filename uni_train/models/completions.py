"""What a server has put into the body of its reply: chat completions, Responses, Images and Gemini's API, read alike.

Judges and remote models read by it, whichever of the forms they have asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MOST_TOKENS = 10_000_000  # of a reply that a server is believed
_STOPS = {
    "length": "max_tokens", "max_tokens": "max_tokens", "max_output_tokens": "max_tokens", "refusal": "refusal",
    **dict.fromkeys(
        ("content_filter", "safety", "image_safety", "prohibited_content", "image_prohibited_content", "blocklist",
         "recitation", "image_recitation", "spii"), "content_filter"),
}  # fmt: skip
_THOUGHTS = ("reasoning", "thinking", "redacted_thinking")  # how types of parts begin that are no answer
_REASONING = ("text", "thinking", "summary", "content", "reasoning", "reasoning_content")  # where their words are
_FILTERED = re.compile(r"filter|block_?reason|safety", re.IGNORECASE)


class Address(str):
    """Where an image of a reply is: a data URL, or one that is fetched."""


@dataclass(frozen=True, slots=True)
class Completion:
    """parts: texts and addresses of images, in order, without thoughts; of a refusal its words. stop: why it ended
    ("stop", "max_tokens", "content_filter", "refusal"). reasoning: the thoughts that came with it, or summaries of
    them. Tokens as the server counts them, 0 where it does not."""

    parts: tuple[str, ...]
    stop: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All texts, a line each."""
        return "\n".join(part for part in self.parts if not isinstance(part, Address))


def read(body: Any) -> Completion | None:
    """The completion in a body; None where there is none."""
    if not isinstance(body, Mapping):
        return None
    choice = first(body, "choices") or first(body, "candidates")
    output, details = body.get("output"), body.get("incomplete_details")
    message = choice.get("message", choice.get("content"))
    given = [message] if choice else output if isinstance(output, list) else [first(body, "data") or None]
    items = [item for item in given if isinstance(item, Mapping)]
    why = (
        choice.get("finish_reason")
        or choice.get("finishReason")
        or (details.get("reason") if isinstance(details, Mapping) else None)
    )
    stop = _STOPS.get(str(why).lower(), "stop")
    if not choice and (body.get("choices") == [] or "promptFeedback" in body) and _FILTERED.search(json.dumps(body)):
        stop = "content_filter"  # of the question
    if not items and stop == "stop":
        return None
    typed = [part for item in items for part in _parts(item)]
    refusals = tuple(words for kind, words in typed if kind == "refusal")
    parts = tuple(Address(words) if kind == "image" else words for kind, words in typed if kind in ("image", "text"))
    reasoning = tuple(words for kind, words in typed if kind == "reasoning" and words.strip())
    usage = body.get("usage") or body.get("usageMetadata")
    read_, written = _tokens(usage, "prompt", "input"), _tokens(usage, "completion", "output", "candidates")
    return Completion(refusals or parts, "refusal" if refusals else stop, read_, written, reasoning)


def first(body: Any, name: str) -> Mapping[str, Any]:
    """The first of a list in a body, whatever the server has put there; empty where there is none."""
    listed = body.get(name) if isinstance(body, Mapping) else None
    return listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], Mapping) else {}


def _parts(given: Any) -> Iterator[tuple[str, str]]:
    """("text", "image", "refusal" or "reasoning", what it says) of an item or a part, and of what is in it."""
    if isinstance(given, str):
        given = {"text": given}
    if not isinstance(given, Mapping):
        return
    if str(given.get("type")).startswith(_THOUGHTS) or given.get("thought") is True:
        yield from (("reasoning", words) for words in _words(given))
        return
    for name in ("reasoning_content", "reasoning"):  # beside a message's content
        if isinstance(given.get(name), str) and given[name].strip():
            yield "reasoning", given[name]
            break
    if given.get("refusal"):
        yield "refusal", str(given["refusal"])
    if isinstance(given.get("text"), str):
        yield "text", given["text"]
    url, data = given.get("image_url") or given.get("url"), given.get("b64_json") or given.get("result")
    url = url.get("url") if isinstance(url, Mapping) else url
    inline = given.get("inlineData")
    if isinstance(inline, Mapping):
        data = inline.get("data")
    if isinstance(data, str):
        url = data if ":" in data else f"data:image/png;base64,{data}"
    if isinstance(url, str):
        yield "image", url
    for name in ("content", "images", "parts"):
        inside = given.get(name)
        for part in inside if isinstance(inside, list) else [inside]:
            yield from _parts(part)


def _words(given: Any) -> Iterator[str]:
    """What a thought says, in whatever it is wrapped."""
    if isinstance(given, str):
        yield given
    for part in given if isinstance(given, list) else []:
        yield from _words(part)
    if isinstance(given, Mapping):
        for name in _REASONING:
            yield from _words(given.get(name))


def _tokens(usage: Any, *names: str) -> int:
    keys = [key for name in names for key in (f"{name}_tokens", f"{name}TokenCount")]
    counts = [usage.get(key) for key in keys] if isinstance(usage, Mapping) else []
    return next((int(count) for count in counts if isinstance(count, int | float) and 0 <= count <= _MOST_TOKENS), 0)
