"""A judge on a real port: an OpenAI-compatible server whose replies a test writes.

    with JudgeServer(lambda asked: "<answer>Yes</answer>") as server:
        JudgeConfig(model=f"{server.url}#judge")

A reply is a text, a whole body, or a `Refused` (an HTTP error). What was asked is in `server.asked`. The table of what
servers do wrong is in `tests.hostile`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.hostile import Listening, chat, error, plain


@dataclass(frozen=True)
class Asked:
    """One request: the words of all messages, those of the last, the pictures' data URLs, the key that was sent."""

    words: str
    last: str
    images: tuple[str, ...]
    key: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Refused:
    """An HTTP error."""

    status: int
    message: str = "no"


class JudgeServer(Listening):
    """`asked` lists every request, in order of arrival. models: what /v1/models lists."""

    def __init__(
        self,
        reply: Callable[[Asked], str | bytes | Refused],
        delay: float = 0.0,
        models: Sequence[dict[str, Any]] = (),
        port: int = 0,
    ) -> None:
        self.asked: list[Asked] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes: each request would wait for 40 ms

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked = _read(body, self.headers.get("Authorization", "").removeprefix("Bearer "))
                server.asked.append(asked)
                time.sleep(delay)
                said = reply(asked)
                if isinstance(said, bytes):
                    plain(self, said)
                elif isinstance(said, str):
                    plain(self, chat(said, prompt_tokens=100, completion_tokens=10, total_tokens=110))
                else:
                    plain(self, error(said.message), said.status)

            def do_GET(self) -> None:
                plain(self, json.dumps({"object": "list", "data": list(models)}).encode())

            def log_message(self, *args: object) -> None:
                return

        super().__init__(Handler, port)


def _read(body: dict[str, Any], key: str) -> Asked:
    texts, images = [], []
    for message in body["messages"]:
        content = message["content"]
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if part["type"] == "text":
                texts.append(part["text"])
            else:
                images.append(part["image_url"]["url"])
    return Asked("\n".join(texts), texts[-1], tuple(images), key, body)
