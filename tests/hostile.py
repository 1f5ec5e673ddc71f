"""A server on 127.0.0.1 that misbehaves on purpose: `tests` ask it as a judge, or as a remote model.

    with Hostile("endless") as server:
        JudgeConfig(model=f"{server.url}#judge")

`behave` names one of BEHAVIOURS, for POST and, where `models` is True, for GET too. Every loop is bounded.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

MOST_SENT = 1 << 30  # bytes of an endless body, should nobody hang up
LONGEST = 60.0  # seconds that a connection is held open
MODELS = {"object": "list", "data": [{"id": "judge", "object": "model", "created": 0, "owned_by": "x"}]}


def chat(text: object, stop: object = "stop", refusal: str | None = None, **usage: object) -> bytes:
    """A chat completion, as it should be. refusal: a text in the key that a model refuses in."""
    message = {"role": "assistant", "content": text, **({} if refusal is None else {"refusal": refusal})}
    choice = {"index": 0, "message": message, "finish_reason": stop}
    head = {"id": "1", "object": "chat.completion", "created": 0, "model": "judge"}
    return json.dumps({**head, "choices": [choice], **({"usage": usage} if usage else {})}).encode()


def error(message: str, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()


def response(*parts: dict[str, object], status: str = "completed", **more: object) -> bytes:
    """A reply of the Responses API: a thought, then a message with these parts."""
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": SAID_NO}]}
    message = {"type": "message", "role": "assistant", "content": list(parts)}
    return json.dumps({"object": "response", "status": status, "output": [thought, message], **more}).encode()


class Listening:
    """Answers on 127.0.0.1 at `url` until the `with` ends. port: 0: any that is free."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        self._server = _Server(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class Hostile(Listening):
    """asked: (path, Authorization) of every request; sent: bytes of bodies."""

    def __init__(self, behave: str, *, models: bool = False, to: str = "") -> None:
        """models: /v1/models misbehaves too. to: where "redirect" points."""
        self.to = to
        self.asked: list[tuple[str, str]] = []
        self.sent = 0
        if behave == "bomb":
            _small()  # takes a second, which no request is to wait for
        self._stop = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(models)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._answer(True)

            def _answer(self, misbehave: bool) -> None:
                server.asked.append((self.path, self.headers.get("Authorization", "")))
                try:
                    if misbehave:
                        BEHAVIOURS[behave](server, self)
                    else:
                        plain(self, json.dumps(MODELS).encode())
                except OSError:
                    pass  # the client has hung up
                self.close_connection = True

            def end_headers(self) -> None:
                self.send_header("Connection", "close")  # or clients would use one again that ends here
                super().end_headers()

            def log_message(self, *args: object) -> None:
                return

        super().__init__(Handler)

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        super().__exit__(*raised)

    def hold(self, seconds: float) -> bool:
        """Wait; whether the test is still on."""
        return not self._stop.wait(seconds)


def plain(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content_Type": "application/json", "Content_Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def _endless(server: Hostile, handler: BaseHTTPRequestHandler) -> None:
    """White space before a value that never comes."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    block = b" " * (1 << 20)
    while server.sent < MOST_SENT and server.hold(0):
        handler.wfile.write(block)
        server.sent += len(block)


@cache
def _small() -> bytes:
    """A quarter of a gigabyte in a megabyte."""
    return gzip.compress(bytes(1 << 28), 1)


def _trickling(head: bytes, drop: bytes) -> Callable[[Hostile, BaseHTTPRequestHandler], None]:
    def trickle(server: Hostile, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + head)
        until = time.monotonic() + LONGEST
        while time.monotonic() < until and server.hold(0.1):
            handler.wfile.write(drop)

    return trickle


def _says(body: bytes, status: int = 200, **headers: str) -> Callable[[Hostile, BaseHTTPRequestHandler], None]:
    return lambda server, handler: plain(handler, body, status, **headers)


NO = error("no")
SAID, SAID_NO = "<answer>Yes</answer>", "<answer>No</answer>"
FORMS = {
    "a text": chat(SAID),
    "a list of parts": chat([{"type": "text", "text": SAID}]),
    "thinking, then text": chat([{"type": "thinking", "thinking": SAID_NO}, {"type": "text", "text": SAID}]),
    "reasoning, then text": chat([{"type": "reasoning", "text": SAID_NO}, {"type": "output_text", "text": SAID}]),
    "nested thinking": chat([{"type": "thinking", "thinking": [{"type": "text", "text": SAID_NO}]}, SAID]),
    "texts in a list": chat([SAID]),
    "an object": chat({"type": "text", "text": SAID}),
    "thinking and text in an object": chat({"thinking": SAID_NO, "text": SAID}),
    "an object in an object": chat({"content": [{"text": SAID}]}),
    "a response": response({"type": "output_text", "text": SAID, "annotations": []}),
    "a response with usage": response({"type": "output_text", "text": SAID}, usage={"input_tokens": 3}),
    "no refusal": chat(SAID, refusal=""),
    "usage that is a list": chat(SAID)[:-1] + b', "usage": [1]}',
    "usage of texts": chat(SAID)[:-1] + b', "usage": {"prompt_tokens": "7", "completion_tokens": null}}',
    "a reason that is an object": chat(SAID, stop={"reason": "stop"}),
}
"""Replies that all say yes, and in their thoughts no."""


BEHAVIOURS: dict[str, Callable[[Hostile, BaseHTTPRequestHandler], None]] = {
    "redirect": lambda server, handler: plain(handler, b"", 307, Location=f"{server.to}{handler.path}"),
    "endless": _endless,
    "bomb": lambda server, handler: plain(handler, _small(), Content_Encoding="gzip"),
    "trickle": _trickling(b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n", b" "),
    "trickling headers": _trickling(b"", b"X: y\r\n"),
    "silence": lambda server, handler: (server.hold(LONGEST), None)[1],
    "wait long": _says(NO, 429, Retry_After="999999"),
    "wait for ever": _says(NO, 429, Retry_After="inf"),
    "400": _says(NO, 400),
    "429": _says(NO, 429),
    "500": _says(NO, 500),
    "hang up": lambda server, handler: None,
    "html": _says(b"<html><body>It works!</body></html>", Content_Type="text/html"),
    "nothing": _says(b""),
    "null": _says(b"null"),
    "a list": _says(b"[null]"),
    "null within": _says(b'{"object": "list", "data": [null], "choices": [null]}'),
    "deep": _says(b"[" * 200_000 + b"]" * 200_000),
    "echo": lambda server, handler: plain(
        handler, json.dumps({"key": handler.headers["Authorization"] or "", "text": "next", "none": None}).encode()
    ),
    "surrogate": _says(
        chat("\ud800 broken <answer>Yes</answer>", prompt_tokens=1, completion_tokens=1, total_tokens=2)
    ),
    "prose": _says(chat("The eyes of the picture say yes.")),
    "both answers": _says(chat("<answer>Yes</answer> if it matches, <answer>No</answer> if not")),
    "an answer in Chinese": _says(chat("<answer>是</answer>")),
    "filtered": _says(chat("I cannot", "content_filter")),
    "filtered at once": _says(chat("", "content_filter")),
    "a refusal": _says(chat(None, refusal="I cannot")),
    "a refusal by its reason": _says(chat("I cannot", "refusal")),
    "a refusal part": _says(chat([{"type": "refusal", "refusal": "I cannot"}])),
    "a refused response": _says(response({"type": "refusal", "refusal": "I cannot"})),
    "filtered without a choice": _says(b'{"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}'),
    "filtered without a message": _says(b'{"choices": [{"index": 0, "finish_reason": "content_filter"}]}'),
    "filtered by an error": _says(error("The response was filtered.", "content_filter"), 400),
    "a filtered response": _says(response(status="incomplete", incomplete_details={"reason": "content_filter"})),
    "thoughts alone": _says(chat([{"type": "thinking", "thinking": SAID_NO}])),
    "blank": _says(chat("")),
    "white space": _says(chat(" \n")),
    "talking on": _says(chat("<think>" * 1_000_000)),
    "odd usage": _says(b'{"choices": [{"message": {"content": "<answer>Yes</answer>"}}], "usage": '
                       b'{"prompt_tokens": 1e999, "completion_tokens": -5}}'),
    **{form: _says(body) for form, body in FORMS.items()},
}  # fmt: skip
