"""A server that rewards ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Reply = Callable[[dict[str, Any]], tuple[int, bytes]]


@contextmanager
def serving(reply: Reply) -> Iterator[tuple[str, list[dict[str, Any]], list[str | None]]]:
    """A server that answers each POST by `reply`: its address, the bodies it got, and their keys."""
    seen: list[dict[str, Any]] = []
    keys: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, b'{"object": "list", "data": [{"id": "judge", "object": "model"}]}')

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(body)
            keys.append(self.headers.get("Authorization"))
            self._send(*reply(body))

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/score", seen, keys
    finally:
        server.shutdown()
        server.server_close()
