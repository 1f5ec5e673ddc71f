"""A judge on a real port: an OpenAI-compatible server whose replies a test writes.

    with JudgeServer(lambda asked: "<answer>Yes</answer>") as server:
        JudgeConfig(model=f"{server.url}#judge")

A reply is a text, or a `Refused` (an HTTP error), or a callable's own delay. What was asked is in `server.asked`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


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
    retry_after: str | None = None


@dataclass(frozen=True)
class Said:
    """A text with its own reason for ending."""

    text: str
    stop: str = "stop"
    refusal: bool = False  # the text is in the key that a model refuses in


class JudgeServer:
    """Answers on 127.0.0.1 at `url` until the `with` ends; `asked` lists every request, in order of arrival.

    models: what /v1/models lists. port: 0: any that is free.
    """

    def __init__(
        self,
        reply: Callable[[Asked], str | Said | Refused],
        delay: float = 0.0,
        models: Sequence[dict[str, Any]] = (),
        port: int = 0,
    ) -> None:
        self.reply, self.delay = reply, delay
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked = _read(body, self.headers.get("Authorization", "").removeprefix("Bearer "))
                with server._lock:
                    server.asked.append(asked)
                time.sleep(server.delay)
                said = server.reply(asked)
                status, answer = _written(said, asked)
                self.send(status, answer, said.retry_after if isinstance(said, Refused) else None)

            def do_GET(self) -> None:
                self.send(200, {"object": "list", "data": list(models)})

            def send(self, status: int, answer: dict[str, Any], retry_after: str | None = None) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if retry_after is not None:
                    self.send_header("Retry-After", retry_after)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> JudgeServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


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


def _written(said: str | Said | Refused, asked: Asked) -> tuple[int, dict[str, Any]]:
    if isinstance(said, Refused):
        return said.status, {"error": {"message": said.message, "type": "error", "code": None}}
    found = Said(said) if isinstance(said, str) else said
    message = {"role": "assistant", "content": None, "refusal": found.text}
    if not found.refusal:
        message = {"role": "assistant", "content": found.text}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    choices = [{"index": 0, "message": message, "finish_reason": found.stop}]
    return 200, {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "judge",
        "choices": choices,
        "usage": usage,
    }
