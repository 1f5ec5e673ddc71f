"""How close judging comes to what its judge allows: a local server that answers after 200 ms, 50 at once.

    python bench/judging.py                    # 5,000 judgements; ideal: 5,000 / 50 x 0.2 s = 20 s
    python bench/judging.py --n 2000 --kills 20

Each judgement is one question with a picture (UReason's Figure 25). The server, a process of its own, refuses the 51st
request at once. Printed: the wall time against the ideal, imports included; the processor time of judging (a floor
below which no number of connections helps), that of our client and of the openai client alone for the same requests,
and what a second run costs, which asks nothing. With --kills, a run is killed (SIGKILL) at random times and continued.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bench.dev_extra  # noqa: F401
from bench.markdown import row, table

DELAY, AT_ONCE = 0.2, 50


class Judge(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, no more than an OpenAI client needs."""

    under_way = 0
    answered = 0
    refused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.data = transport, b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, gap, body = self.data.partition(b"\r\n\r\n")
        if not gap:
            return
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        if len(body) < length:
            return
        self.data = b""
        if head.startswith(b"GET"):
            self.say(200, {"answered": Judge.answered, "refused": Judge.refused})
        elif Judge.under_way >= AT_ONCE:
            Judge.refused += 1
            self.say(429, {"error": {"message": "too many at once"}})
        else:
            Judge.under_way += 1
            asyncio.get_running_loop().call_later(DELAY, self.answer)

    def answer(self) -> None:
        Judge.under_way -= 1
        Judge.answered += 1
        message = {"role": "assistant", "content": "The picture shows what it should.\n<answer>Yes</answer>"}
        usage = {"prompt_tokens": 400, "completion_tokens": 20, "total_tokens": 420}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "judge"}
        self.say(200, {**reply, "choices": choices, "usage": usage})

    def say(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        if not self.transport.is_closing():
            self.transport.write(head.encode() + data)


def serve() -> None:
    """Answer until killed; the first line printed is the port."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Judge, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(main())


def benchmark(n: int) -> Any:
    """n pictures of nano's world, each to be judged by one criterion."""
    from tests.eval.judges.criteria import Criteria
    from uni_train.data_gen.registry import get_task
    from uni_train.models.pictures import encode_png

    class Pictures(Criteria):
        def samples(self) -> list[Any]:
            task = get_task("maths", "nano")
            pictures = [encode_png(task.render(item, 0)) for item in task.generate(50, 1, "test", 0)]
            return [replace(one, parts=(pictures[i % 50],)) for i, one in enumerate(super().samples())]

    return Pictures(n)


def judge_all(n: int, url: str, folder: Path) -> tuple[float, float, str]:
    """Wall and processor seconds of judging n samples, and a digest of the verdicts."""
    from uni_train.config.schema import JudgeConfig
    from uni_train.eval.judges import run

    asked = benchmark(n)
    samples = asked.samples()
    judge = JudgeConfig(model=f"{url}#judge", revision="bench", connections=AT_ONCE)
    cpu, wall = time.process_time(), time.perf_counter()
    scored = run(samples, asked, judge, folder)
    took = time.perf_counter() - wall, time.process_time() - cpu
    said = json.dumps([[one.sample.key, one.outcome, one.replies] for one in scored])
    return *took, hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def own_client(n: int, url: str) -> tuple[float, float]:
    """The same by the client that judging uses."""
    from uni_train.config.schema import JudgeConfig
    from uni_train.core.http_client import Client
    from uni_train.eval.judges.judge import ask
    from uni_train.eval.judges.replies import Turn

    judge = JudgeConfig(model=f"{url}#judge", connections=AT_ONCE)
    return _asked(
        n, Client("", judge), lambda client, words, image: ask(client, judge, [Turn("user", words, (image,))], None)
    )


def bare_client(n: int, url: str) -> tuple[float, float]:
    """The same requests by the openai client alone."""
    from openai import AsyncOpenAI

    from uni_train.models.pictures import data_url

    def send(client: Any, words: str, image: bytes) -> Any:
        picture = {"type": "image_url", "image_url": {"url": data_url(image), "detail": "auto"}}
        message: Any = {"role": "user", "content": [picture, {"type": "text", "text": words}]}
        return client.chat.completions.create(model="judge", messages=[message], max_tokens=1024)

    return _asked(n, AsyncOpenAI(base_url=url, api_key="local"), send)


def _asked(n: int, opened: Any, send: Callable[[Any, str, bytes], Any]) -> tuple[float, float]:
    """Wall and processor seconds of n questions by a client."""
    from uni_train.eval.prompts.ureason import verify_image_prompt

    samples = benchmark(n).samples()

    async def main() -> None:
        limit = asyncio.Semaphore(AT_ONCE)
        async with opened as client:

            async def one(sample: Any) -> None:
                async with limit:
                    await send(client, verify_image_prompt(sample.ask.case.facts["criterion"]), sample.image)

            await asyncio.gather(*(one(sample) for sample in samples))

    cpu, wall = time.process_time(), time.perf_counter()
    asyncio.run(main())
    return time.perf_counter() - wall, time.process_time() - cpu


class Server:
    """The judge in a process of its own; a context manager."""

    def __enter__(self) -> Server:
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}/v1"
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    def answered(self) -> int:
        with urllib.request.urlopen(self.url) as reply:
            return int(json.load(reply)["answered"])


def start(n: int, url: str, folder: Path) -> subprocess.Popen[str]:
    """Judging in a process of its own, whose last line says what it took."""
    command = [sys.executable, __file__, "--n", str(n), "--judge", url, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"judging ended with {process.returncode}")
    return dict(json.loads(said.splitlines()[-1]))


def speed(n: int) -> None:
    """One run, one that finds everything done, and the bare client."""
    ideal = n / AT_ONCE * DELAY
    with Server() as server, tempfile.TemporaryDirectory() as name:
        first = finish(start(n, server.url, Path(name)))
        asked, load = server.answered(), os.getloadavg()[0]
        again = finish(start(n, server.url, Path(name)))
        asked_again = server.answered() - asked
        size = sum(file.stat().st_size for file in Path(name).rglob("*") if file.is_file()) / 1e6
        few = min(n, 1000)
        own_client(AT_ONCE, server.url), bare_client(AT_ONCE, server.url)  # imports and connections
        clients = own_client(few, server.url), bare_client(few, server.url)
    per, share = 1000 / n, few / n
    own, bare = ({"wall": wall / share, "cpu": cpu / share} for wall, cpu in clients)
    print(*table(f"{n:,} judgements", "wall s", "x ideal", "processor s", "ms each", "peak MB"), sep="\n")
    print(row(f"ideal: {AT_ONCE} at once, {DELAY * 1000:.0f} ms", f"{ideal:.1f}", "1.00", "", "", ""))
    for label, took in (
        (f"judged, {asked:,} questions asked", first),
        (f"again, {asked_again} questions asked", again),
        (f"its client alone (of {few:,})", own),
        (f"the openai client alone (of {few:,})", bare),
    ):
        ratio = f"{took['wall'] / ideal:.2f}" if took is not again else ""
        peak = f"{took['peak_mb']:.0f}" if "peak_mb" in took else ""
        print(row(label, f"{took['wall']:.1f}", ratio, f"{took['cpu']:.1f}", f"{took['cpu'] * per:.2f}", peak))
    cores = len(os.sched_getaffinity(0))
    print(f"\nreplies and logs: {size:.1f} MB; load of the machine after judging: {load:.1f}, cores for this: {cores}")


def kills(n: int, times: int) -> None:
    """A run that is killed after `times` random numbers of replies, against one that is not.

    Runs are forks of this process, which has imported everything: what is killed is judging, not Python's start.
    """
    from uni_train.eval import judges  # noqa: F401

    fork = multiprocessing.get_context("fork")
    with Server() as server, tempfile.TemporaryDirectory() as name:
        killed, moment, dearest = Path(name) / "killed", random.Random(0), 0
        for _ in range(times):
            answered, stored = server.answered(), _replies(killed)
            process = fork.Process(target=judge_all, args=(n, server.url, killed))
            process.start()
            enough = stored + moment.randrange(2 * n // (times + 1))
            while _replies(killed) <= enough and process.is_alive():
                time.sleep(0.01)
            process.kill()
            process.join()
            time.sleep(2 * DELAY)  # what was under way is still answered, to nobody
            dearest = max(dearest, server.answered() - answered - (_replies(killed) - stored))
        last = finish(start(n, server.url, killed))
        twice = server.answered() - n
        whole = finish(start(n, server.url, Path(name) / "whole"))
    same = "equal" if last["digest"] == whole["digest"] else "DIFFERENT"
    print(f"killed {times} times: verdicts {same}; {twice} questions asked twice, at most {dearest} after one kill")
    if last["digest"] != whole["digest"] or dearest > AT_ONCE:
        raise SystemExit(1)


def _replies(folder: Path) -> int:
    """Whole lines in the store."""
    return sum(file.read_bytes().count(b"\n") for file in folder.rglob("replies/*.jsonl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=5000, help="judgements")
    parser.add_argument("--kills", type=int, default=0, help="kill a run so many times instead of timing one")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--judge", nargs=2, metavar=("URL", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
    elif arguments.judge:
        url, folder = arguments.judge
        wall, cpu, digest = judge_all(arguments.n, url, Path(folder))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"wall": wall, "cpu": cpu, "peak_mb": peak, "digest": digest}))
    elif arguments.kills:
        kills(arguments.n, arguments.kills)
    else:
        speed(arguments.n)


if __name__ == "__main__":
    main()
