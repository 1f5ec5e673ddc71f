"""`uni_train serve` under 200 connections, one in ten of them hostile: who is answered, how soon, with what memory.

    python bench/serve_hostile.py                       # nano on this machine's CPU
    python bench/serve_hostile.py --connections 400 --hostile 0.25 --requests 3

Honest clients ask short questions and for drawings, one after the other, and come again after a 429 as it says. Hostile
ones do one of HOSTILE again and again until the last honest one is done. Each client has an address of its own below
127.0.0.0/8. Memory is that of all processes of the server together, twice a second. Exits with 1 if an honest request
was not answered or the server has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import io
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import bench.dev_extra  # noqa: E402, F401
from bench.timing import family_memory  # noqa: E402

# isort: split
import httpx  # noqa: E402

from uni_train.core.addresses import held_port  # noqa: E402
from uni_train.data_gen.registry import get_task  # noqa: E402

JSON = {"Content-Type": "application/json"}
PATIENCE = 600.0  # seconds for an honest request, with its waits


def chat(text: str, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}).encode()


@cache
def shown(*sizes: int) -> bytes:
    """A chat with white images of these sides."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What is this?"}]
    for side in sizes:
        data = io.BytesIO()
        Image.new("1", (side, side)).save(data, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return json.dumps({"messages": [{"role": "user", "content": parts}]}).encode()


Connect = Callable[[], Coroutine[Any, Any, tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def _head(length: int | str, path: str = "/v1/chat/completions") -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _send(connect: Connect, *parts: bytes, pause: float = 0.0, wait: bool = True) -> None:
    reader, writer = await connect()
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        if wait:
            await asyncio.wait_for(reader.read(1 << 16), 60)
    finally:
        writer.close()


def _whole(body: bytes) -> tuple[bytes, bytes]:
    return _head(len(body)), body


HOSTILE: dict[str, Callable[[Connect], Coroutine[Any, Any, None]]] = {
    "headers that trickle": lambda to: _send(to, b"POST / HTTP/1.1\r\n", *[b"X: y\r\n"] * 40, pause=0.5),
    "a body that trickles": lambda to: _send(to, _head(10_000), *[b" "] * 40, pause=0.5),
    "a body without end": lambda to: _send(
        to, _head(1).replace(b"Content-Length: 1", b"Transfer-Encoding: chunked"),
        *[b"100000\r\n" + bytes(1 << 20) + b"\r\n"] * 64),
    "a length of a terabyte": lambda to: _send(to, _head(1 << 40), b" "),
    "a prompt of 100,000 words": lambda to: _send(to, *_whole(chat("tree " * 100_000))),
    "the longest prompt": lambda to: _send(to, *_whole(chat("tree " * 3900))),
    "forty images of 8000 x 8000": lambda to: _send(to, *_whole(shown(*[8000] * 40))),
    "5,000 tiny images": lambda to: _send(to, *_whole(shown(*[1] * 5000))),
    "JSON 200,000 levels deep": lambda to: _send(to, *_whole(b"[" * 200_000)),
    "hanging up": lambda to: _send(to, _head(100), b"{", wait=False),
    "hanging up while it is answered": lambda to: _send(to, *_whole(chat("hello")), wait=False),
    "noise": lambda to: _send(to, random.Random(0).randbytes(4096)),
}  # fmt: skip


async def honest(number: int, port: int, requests: int, took: list[float], lost: list[str]) -> None:
    prompt = get_task("maths", "nano").sample(number, 1, "test")[0].prompt
    transport = httpx.AsyncHTTPTransport(local_address=f"127.0.{1 + number // 250}.{1 + number % 250}")
    async with httpx.AsyncClient(
        transport=transport, timeout=PATIENCE, base_url=f"http://127.0.0.1:{port}/v1"
    ) as client:
        for _ in range(requests):
            began = time.monotonic()
            said = "nothing"
            while time.monotonic() < began + PATIENCE:
                try:
                    if number % 4:
                        reply = await client.post("/chat/completions", content=chat(prompt), headers=JSON)
                    else:
                        reply = await client.post("/images/generations", json={"prompt": prompt, "seed": number})
                except httpx.HTTPError as error:
                    said = repr(error)
                    await asyncio.sleep(0.5)
                    continue
                if reply.status_code == 429:
                    await asyncio.sleep(float(reply.headers.get("retry-after", 1)))
                    said = "429"
                    continue
                said = f"{reply.status_code} {reply.text[:100]}"
                break
            if said.startswith("200"):
                took.append(time.monotonic() - began)
            else:
                lost.append(said)


async def attack(number: int, port: int, done: asyncio.Event, count: Counter[str]) -> None:
    names = list(HOSTILE)
    name, address = names[number % len(names)], (f"127.0.9.{1 + number % 250}", 0)
    while not done.is_set():
        with contextlib.suppress(OSError, asyncio.TimeoutError):  # the server has hung up, as it should
            await HOSTILE[name](lambda: asyncio.open_connection("127.0.0.1", port, local_addr=address))
        count[name] += 1
        await asyncio.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--hostile", type=float, default=0.1, help="share of the connections")
    parser.add_argument("--requests", type=int, default=2, help="of each honest client")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, held_port() as port:
        return _measure(asked, port, Path(folder) / "log")


def _measure(asked: argparse.Namespace, port: int, log: Path) -> int:
    command = [sys.executable, "-m", "uni_train", "serve", "-m", "nano", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with open(log, "wb") as output:
        server = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, cwd=ROOT, env=environment
        )
    try:
        while b"ready" not in log.read_bytes():
            if server.poll() is not None:
                raise SystemExit(f"bench/serve_hostile.py: the server did not start: {log.read_text()}")
            time.sleep(0.2)
        idle, peaks, over = family_memory(server.pid), [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                peaks.append(family_memory(server.pid))

        threading.Thread(target=watch, daemon=True).start()
        shown(*[8000] * 40), shown(*[1] * 5000)  # made once
        took: list[float] = []
        lost: list[str] = []
        count: Counter[str] = Counter()
        hostile = round(asked.connections * asked.hostile)
        began = time.monotonic()

        async def all_of_them() -> None:
            done = asyncio.Event()
            attacks = [asyncio.create_task(attack(i, port, done, count)) for i in range(hostile)]
            good = (honest(i, port, asked.requests, took, lost) for i in range(asked.connections - hostile))
            await asyncio.gather(*good)
            done.set()
            for one in attacks:
                one.cancel()
            await asyncio.gather(*attacks, return_exceptions=True)

        asyncio.run(all_of_them())
        seconds, alive = time.monotonic() - began, server.poll() is None
        over.set()
        said = log.read_text(errors="replace")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    asked_for = (asked.connections - hostile) * asked.requests
    print(f"{asked.connections} connections, {hostile} of them hostile, {seconds:.0f} s:")
    print(f"honest requests answered: {len(took)} of {asked_for}")
    if took:
        print(f"seconds to an answer: median {statistics.median(took):.1f}, longest {max(took):.1f}")
    print(f"memory of the server: {idle / 2**30:.2f} GiB before, {max(peaks) / 2**30:.2f} GiB at most")
    print(f"the server is {'up' if alive else 'gone'}; tracebacks in its log: {said.count('Traceback')}")
    print("hostile attempts:", ", ".join(f"{name} {n}" for name, n in sorted(count.items())))
    for one in lost[:5]:
        print("not answered:", one)
    return int(len(took) < asked_for or not alive or "Traceback" in said)


if __name__ == "__main__":
    sys.exit(main())
