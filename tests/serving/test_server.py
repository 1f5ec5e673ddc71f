"""`uni_train serve` over real connections, asked by OpenAI's own client, by httpx, and by our remote model."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPResponse
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import uvicorn
from starlette.requests import Request as HttpRequest

from tests.processes import python
from tests.served import served
from uni_train.config.schema import RemoteConfig
from uni_train.core.addresses import held_port
from uni_train.core.errors import SkillMissing
from uni_train.data_gen.sprites import read
from uni_train.models.base import Request
from uni_train.models.batches import ModelDown
from uni_train.models.identity import identify
from uni_train.models.load import build_model, model_config
from uni_train.models.nano import language
from uni_train.models.pictures import data_url, decode_picture, encode_png
from uni_train.models.remote import RemoteModel
from uni_train.serving.protocol import Limits, Reply, Task
from uni_train.serving.server import HttpProtocol, OpenAIPaths, Served, TaskLoop

pytestmark = pytest.mark.slow
KEY = "a-key-of-our-own"
WITH_KEY = ("--key-env", "SERVE_KEY")


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVE_KEY", KEY)
        yield


@pytest.fixture(scope="module")
def url(key: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """nano, served with a key. Stopped by SIGTERM, after which nothing may be left."""
    log = tmp_path_factory.mktemp("serve") / "log"
    with served(log, *WITH_KEY) as (address, server):
        yield address
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0, log.read_text()
        assert "Traceback" not in log.read_text() and KEY not in log.read_text()
        _all_end(server.pid)


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Its address without a key and two places, and its first process: a preset, of which one key is replaced. Killed,
    after which nothing may be left."""
    log = tmp_path_factory.mktemp("keyless") / "log"
    options = ("--queue", "2", "--timeout", "5", "--interleaving", "chain", "--sampling", "ufo", "--steps", "7")
    with served(log, *options) as (address, server):
        yield address, server.pid
        server.kill()
        server.wait()
        _all_end(server.pid)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", int(address.split(":")[2].partition("/")[0])))
    assert "Traceback" not in log.read_text()


def _all_end(group: int) -> None:
    """Return when all processes of a group have ended."""
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.1)


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)


@pytest.fixture(scope="module")
def remote(url: str) -> RemoteModel:
    return RemoteModel.open(f"{url}#nano", RemoteConfig(key_env="SERVE_KEY", connections=16, retries=0))


def requests(n: int) -> list[Request]:
    return [Request(f"r{i}", f"Draw {1 + i % 5} apples .", seed=i) for i in range(n)]


def said(words: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": words}], **more}


def test_texts_and_images_in_turns_are_those_of_the_model_itself(keyless: tuple[str, int], url: str) -> None:
    config = model_config("nano")
    preset = {"temperature": 0.0, "steps": 7, "edit_text_scale": 7.5}  # of ufo, and the steps that are typed
    config = replace(config, sampling=replace(config.sampling, interleaving="chain", **preset))
    local, remote = build_model(config), RemoteModel.open(f"{keyless[0]}#nano", RemoteConfig())
    asked = requests(2)
    assert remote.compose(asked) == local.compose(asked)
    assert remote.identity.settings["server"] == identify(config).settings
    with pytest.raises(SkillMissing, match="in one pass"):
        RemoteModel.open(f"{url}#nano", RemoteConfig(key_env="SERVE_KEY")).compose(asked)


def test_a_served_model_answers_as_the_model_itself(remote: RemoteModel) -> None:
    """Up to the rounding of another batch: a pixel by 1."""
    local = build_model(model_config("nano"))
    asked = requests(10)
    assert remote.think(asked) == local.think(asked)
    pictures = local.draw(asked)
    for far, own in zip(remote.draw(asked), pictures, strict=True):
        assert isinstance(far, np.ndarray) and np.abs(far.astype(int) - own.astype(int)).max() <= 1
    shown = [Request(one.id, language.CAPTION_PROMPT, (picture,)) for one, picture in zip(asked, pictures, strict=True)]
    assert remote.answer(shown) == local.answer(shown)
    assert remote.identity.content == identify(model_config("nano")).content


def test_openais_client_draws_and_has_pictures_judged(client: openai.OpenAI) -> None:
    more = {"seed": 1, "thinking": True}
    drawn = client.images.generate(
        model="nano", prompt="Draw 3 apples .", n=2, response_format="b64_json", extra_body=more
    )
    assert drawn.data is not None and len(drawn.data) == 2
    thought = (drawn.data[0].model_extra or {})["thought"]
    assert "apple" in thought
    png = base64.b64decode(drawn.data[0].b64_json or "")
    reading = read(decode_picture(png, "the picture"))
    answer = client.chat.completions.create(
        model="nano",
        messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": data_url(png)}},
            {"type": "text", "text": language.CAPTION_PROMPT},
        ]}],
        temperature=0,
        max_tokens=20,
    )  # fmt: skip
    assert answer.choices[0].message.content == language.caption(language.counted(reading.name, reading.count))
    assert answer.usage is not None and answer.usage.prompt_tokens > answer.usage.completion_tokens > 0
    asked = said("Draw 3 apples .", model="nano", extra_body={"skill": "think"})
    whole = client.chat.completions.create(**asked)  # type: ignore[call-overload]
    parts = client.chat.completions.create(**asked, stream=True)  # type: ignore[call-overload]
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.choices[0].message.content


def test_what_has_queued_up_is_done_together_and_answered_apart() -> None:
    """The loop of the process that holds the model, without the process."""
    asked: list[int] = []
    sent: list[tuple[int, str, list[str | None]]] = []

    class Model:
        def predict(self, tasks: Sequence[Task]) -> list[Reply]:
            asked.append(len(tasks))
            if any(task.request.prompt == "break" for task in tasks):
                raise RuntimeError("a defect")
            return [Reply(task.request.prompt) for task in tasks]

    class Transport:
        def send(self, item: Any, consumer_id: int) -> None:
            uid, (replies, *_) = item
            sent.append((consumer_id, uid, [getattr(one, "text", None) for one in replies]))

    def message(uid: str, *prompts: str) -> tuple[int, str, float, list[Task]]:
        return 0, uid, 0.0, [Task("answer", Request(uid, prompt)) for prompt in prompts]

    queue: Queue[Any] = Queue()
    loop = TaskLoop(most=4)
    for one in (message("a", "1"), message("b", "2", "3"), message("c", "4"), message("d", "5"), message("e", "break")):
        queue.put(one)
    loop.run(Model(), "cpu", 0, queue, Transport(), {}, None)  # type: ignore[arg-type]
    assert asked == [4] and sent == [(0, "a", ["1"]), (0, "b", ["2", "3"]), (0, "c", ["4"])]
    loop.run(Model(), "cpu", 0, queue, Transport(), {}, None)  # type: ignore[arg-type]
    assert sent[3:] == [(0, "d", [None]), (0, "e", [None])]  # a defect is answered, and the loop lives on
    for age in (99.0, 0.0):
        queue.put((0, str(age), time.monotonic() - age, [Task("answer", Request("a", "x"))]))
    assert [uid for _, uid, *_ in TaskLoop(4, seconds=10.0)._messages(queue)] == ["0.0"], "nobody waits for the first"


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (said("Draw a dragon ."), "nano does not know the word 'a'", None),
        (said("x", model="another"), "there is no model 'another' here", None),
        (said("Draw 3 apples .", thinking=True), "nano cannot think before it answers", "skill_missing"),
    ],
)
def test_a_clients_mistake_is_a_400_with_a_sentence(
    client: openai.OpenAI, body: dict[str, object], message: str, code: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body=body, cast_to=object)
    assert message in str(caught.value)
    assert code in (None, caught.value.code)  # which a remote model raises as SkillMissing


def test_what_nano_cannot_draw_is_said_and_does_not_spoil_its_batch(client: openai.OpenAI, remote: RemoteModel) -> None:
    asked = requests(6)
    asked[2] = Request("bad", "Draw a dragon .")
    picture, *others = remote.draw(asked)
    assert isinstance(picture, np.ndarray)
    assert [isinstance(one, np.ndarray) for one in others] == [True, False, True, True, True]
    assert "does not know the word" in str(others[1])
    (edited,) = remote.draw([Request("edit", "Draw 3 apples .", (picture,), seed=3)])
    assert isinstance(edited, np.ndarray) and edited.shape == picture.shape
    with pytest.raises(openai.BadRequestError, match="cannot draw 8 x 4000 pixels"):
        client.images.generate(model="nano", prompt="Draw 3 apples .", size="4000x8")  # type: ignore[call-overload]
    with pytest.raises(openai.BadRequestError, match="no image that can be read"):
        client.images.edit(model="nano", image=("x.png", b"none", "image/png"), prompt="Draw 3 apples .")


def test_a_wrong_key_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelDown, match="wants a key"):
        RemoteModel.open(f"{url}#nano", RemoteConfig(retries=0))
    monkeypatch.setenv("WRONG", "another-key")
    with pytest.raises(ModelDown, match="refuses the key in WRONG"):
        RemoteModel.open(f"{url}#nano", RemoteConfig(retries=0, key_env="WRONG"))


def post(url: str, body: bytes | Iterable[bytes], client: str = "", timeout: float = 600) -> httpx.Response:
    """A chat request. client: as whom a proxy on this machine would name it."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json; charset=utf-8"}
    headers |= {"X-Forwarded-For": client} if client else {}
    return httpx.post(f"{url}/chat/completions", content=body, headers=headers, timeout=timeout)


def asks(words: str, images: int = 0, **more: Any) -> bytes:
    parts = [{"type": "image_url", "image_url": {"url": data_url(encode_png(np.zeros((2, 2, 3), np.uint8)))}}] * images
    content = [*parts, {"type": "text", "text": words}]
    return json.dumps({"messages": [{"role": "user", "content": content}], "skill": "think", **more}).encode()


def _begins(url: str, body: bytes, told: int) -> socket.socket:
    """A connection on which `body` has been sent, the beginning of `told` bytes."""
    host, port = url.removeprefix("http://").partition("/")[0].split(":")
    connection = socket.create_connection((host, int(port)), timeout=600)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    head += "Content-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {told}\r\n\r\n".encode() + body)
    return connection


def _leaves(url: str, body: bytes, told: int) -> None:
    """A client that hangs up: in the middle of what it said it would send, or before the reply."""
    with _begins(url, body, told):
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (asks("apples " * 4001), 400, "the prompt has 4,001 words; this server takes 4,000"),
        (b" " * (33 << 20), 413, "this server takes 32 MiB"),
        ((b" " * (1 << 20) for _ in range(64)), 413, "this server takes 32 MiB"),
        (b"[" * 100_000, 400, "no JSON"),
    ],
    ids=["words", "body", "chunks", "nested"],
)
def test_what_passes_a_limit_is_refused(url: str, body: bytes, status: int, message: str) -> None:
    reply = post(url, body)
    assert reply.status_code == status and message in reply.json()["error"]["message"]


def test_every_honest_request_is_answered_among_hostile_ones(url: str) -> None:
    """The log, which may hold no traceback, is looked at when the server has ended."""
    whole = asks("Draw 3 apples .")
    evil: list[Callable[[], object]] = [
        lambda: _leaves(url, b"{", 1000),
        lambda: _leaves(url, whole, len(whole)),
        lambda: post(url, asks("apples " * 2000, n=2), "10.0.0.9"),
        lambda: post(url, b"\xff" * (1 << 20), "10.0.0.9"),
        lambda: post(url, asks("Caption :", 5000), "10.0.0.9"),
    ]
    with ThreadPoolExecutor(20) as pool:
        hostile = [pool.submit(one) for one in evil * 2]
        honest = [pool.submit(post, url, whole, f"10.0.1.{i % 8}") for i in range(20)]
        assert {one.result().status_code for one in honest} == {200}
        for one in hostile:
            one.result()


def _process_of_the_model(server: int) -> int:
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    return next(int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes())


def test_who_waits_in_vain_is_told(keyless: tuple[str, int]) -> None:
    (url, server), whole = keyless, asks("Draw 3 apples .")
    slow = [_begins(url, b" ", 1000) for _ in range(5)]
    assert post(url, whole).status_code == 200, "bodies that still come take no place"
    model = _process_of_the_model(server)
    os.kill(model, signal.SIGSTOP)
    stuck, refused = [], None
    while refused is None or refused.status_code != 429:  # until the server has accepted two that hold all places
        assert len(stuck) < 40, "all are accepted, or none"
        stuck += [_begins(url, whole, len(whole)) for _ in range(2)]
        refused = post(url, whole)
    assert int(refused.headers["Retry-After"]) > 0 and "2 requests are waiting" in refused.text
    for connection in stuck[:2]:  # until their time is up
        with connection, HTTPResponse(connection) as reply:
            reply.begin()
            assert reply.status == 504 and b"not answered within 5 s" in reply.read()
    os.kill(model, signal.SIGCONT)
    for connection in slow:
        connection.close()


def test_pages_of_other_sites_are_refused(keyless: tuple[str, int]) -> None:
    """Pages may send some kinds of bodies without asking first, and reach a server without a key by their name."""
    (url, _), whole = keyless, asks("Draw 3 apples .")
    form = {"data": {"prompt": "Draw 3 apples ."}, "files": {"image": encode_png(np.zeros((2, 2, 3), np.uint8))}}
    for path in ("/", "/health", "/info", "/v1/models"):
        assert httpx.get(url.removesuffix("/v1") + path).status_code == 200
        assert httpx.get(url.removesuffix("/v1") + path, headers={"Host": "evil.test:8000"}).status_code == 403
    for headers, status in (
        ({}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.test"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": ""}, 415),
    ):
        sent = {"Content-Type": "application/json", **headers}
        reply = httpx.post(f"{url}/chat/completions", content=whole, headers=sent)
        assert reply.status_code == status, (headers, reply.text)
    edits = f"{url}/images/edits"
    replies = [httpx.post(edits, **form, headers={"Origin": f"http://{at}"}) for at in ("localhost", "evil.test")]  # type: ignore[arg-type]
    replies.append(httpx.post(edits, json={"prompt": "Draw 3 apples ."}))
    assert [reply.status_code for reply in replies] == [200, 403, 415]


def test_a_model_s_process_that_is_killed_ends_the_server_with_a_word() -> None:
    """It is killed as soon as HTTP is answered; here by a socket, and the process holds no model."""
    done = python(
        "-c",
        "import os, signal, socket, threading, time\n"
        "from multiprocessing import get_context\n"
        "from types import SimpleNamespace\n"
        "from uni_train.serving.server import _attend\n"
        "model = get_context('fork').Process(target=time.sleep, args=(600,))\n"
        "model.start()\n"
        "http = socket.create_server(('127.0.0.1', 0))\n"
        "server, port = SimpleNamespace(inference_workers=[model]), http.getsockname()[1]\n"
        "_attend(server, 'nano', '127.0.0.1', port, lambda: os.kill(model.pid, signal.SIGKILL), threading.Event())",
    )
    assert done.returncode == 1 and "error: the process that holds nano was killed by SIGKILL\n" in done.stderr, done


def test_a_model_s_process_that_is_killed_while_it_loads_ends_the_server_with_a_word(tmp_path: Path) -> None:
    """By a plug-in, as the system does where memory runs out."""
    killed = "import multiprocessing, os\nif multiprocessing.parent_process(): os.kill(os.getpid(), 9)"
    (tmp_path / "killed.py").write_text(killed)
    command = [sys.executable, "-m", "uni_train", "serve", "-m", "nano", "--port"]
    place = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}", "UNI_TRAIN_PLUGINS": "killed"}
    with held_port() as port:
        done = subprocess.run([*command, str(port)], env=place, capture_output=True, text=True)
    assert done.returncode == 1 and "error: the process that holds nano was killed by SIGKILL" in done.stderr, done


def test_a_body_that_does_not_come_is_given_up() -> None:
    paths = OpenAIPaths(Served.from_config(model_config("nano"), limits=Limits(body=-9.9)))  # .1 s for each

    async def nothing() -> Any:
        await asyncio.Event().wait()

    head = {"type": "http", "headers": [(b"content-type", b"application/json")]}
    reply = asyncio.run(paths.chat(HttpRequest(head, nothing)))
    assert reply.status_code == 408 and b"did not come within 0.1 s" in reply.body
    assert not paths._places.locked()


def test_connections_whose_headers_do_not_come_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a byte, in the first headers, and in those of a later request; one that is being answered is not."""
    monkeypatch.setattr("uni_train.serving.server.HEADERS", 0.3)
    whole, half = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1.0)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def answers(port: int, sent: bytes) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        received = await reader.read()  # until the server closes it
        writer.close()
        return received.count(b"204")

    async def everything(port: int) -> list[int]:
        server = uvicorn.Server(uvicorn.Config(app, port=port, http=HttpProtocol, lifespan="off", log_level="error"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        found = await asyncio.gather(*(answers(port, sent) for sent in (b"", half, whole + half, whole, whole * 2)))
        server.should_exit = True
        await serving
        return found

    with held_port() as port:
        assert asyncio.run(everything(port)) == [0, 0, 1, 1, 2]
