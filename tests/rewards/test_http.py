"""A reward behind an address: what it is sent, what it may send back, and what ends the run with the address."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from uni_train.config.compose import compose
from uni_train.config.schema import HttpRewardConfig, RewardConfig
from uni_train.data_gen.registry import get_task
from uni_train.errors import UsageError, UserError
from uni_train.models.pictures import decode_png
from uni_train.rewards.contract import Reward, Scoring
from uni_train.rewards.http import Http

Reply = Callable[[dict[str, Any]], tuple[int, bytes]]
IMAGES = [np.full((24, 24, 3), value, np.uint8) for value in (0, 100, 200, 250, 50)]
COLUMNS = {"id": list("abcde"), "images": [[IMAGES[1]], [], [], [], []]}


@contextmanager
def serving(reply: Reply) -> Iterator[tuple[str, list[dict[str, Any]], list[str | None]]]:
    seen: list[dict[str, Any]] = []
    keys: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(405, b"{}")

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
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/score", seen, keys
    finally:
        server.shutdown()
        server.server_close()


def bright(body: dict[str, Any]) -> tuple[int, bytes]:
    means = [float(decode_png(base64.b64decode(image)).mean()) for image in body["images"]]
    return 200, json.dumps({"scores": [None if mean == 200 else mean / 250 for mean in means]}).encode()


def reward_at(address: str, **settings: Any) -> Http:
    return Http(RewardConfig(function="http", http=HttpRewardConfig(address=address, **settings)))


def test_images_prompts_and_references_go_there_and_scores_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    task = get_task("maze", "nano")
    item = task.sample(0, 4, "test")[0]
    with serving(bright) as (address, seen, keys):
        reward = reward_at(address, batch=2, connections=2, key_env="MY_KEY")
        asked = Reward("bright", reward, apart=5.0)
        with Scoring([asked], group_size=5) as scoring:
            scoring.add(["draw"] * 5, IMAGES, {**COLUMNS, "item": [item, None, None, None, None]})
            scores = scoring.scores()
    assert scores.each[:, 0].tolist() == pytest.approx([0, 0.4, np.nan, 1, 0.2], nan_ok=True)
    assert sorted(len(body["images"]) for body in seen) == [1, 2, 2] and set(keys) == {"Bearer secret"}
    (first,) = (body for body in seen if "a" in body["ids"])
    assert first["prompts"] == ["draw", "draw"] and first["items"][0]["answer"] == item.answer
    assert np.array_equal(decode_png(base64.b64decode(first["inputs"][0][0])), IMAGES[1])
    assert np.array_equal(decode_png(base64.b64decode(first["references"][0])), task.render(item))
    assert first["references"][1] is None and first["inputs"][1] == []


def sends(scores: str, status: int = 200) -> Reply:
    return lambda body: (status, scores.encode())


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (sends('{"scores": [1, 2]}'), "sent 2 scores for 5 images"),
        (sends('{"rewards": [1]}'), "sent no list of scores for 5 images"),
        (sends("[1, 2, 3, 4, 5]"), "sent no list of scores"),
        (sends('{"scores": [1, 2, NaN, 4, 5]}'), "scored an image of c nan"),
        (sends('{"scores": [1, 2, 3, 4, "5"]}'), "scored an image of e '5'"),
        (sends('{"scores": [1, 2, 1' + "0" * 400 + ", 4, 5]}"), "scored an image of c 1000"),
        (sends('{"scores": [1, 2, 3, 4, "' + "x" * 9000 + '"]}'), "scored an image of e 'xxx"),
        (sends("dear friend"), "sent no JSON"),
        (sends('{"detail": "bad image"}', 422), "answers 422: bad image"),
        (sends('{"error": "broken"}', 500), "answers 500: broken"),
        (lambda body: (time.sleep(2), (200, b"{}"))[1], "within 0.3 s"),
    ],
)
def test_what_is_no_score_ends_the_run_with_the_address(reply: Reply, said: str) -> None:
    with serving(reply) as (address, _, _):
        reward = reward_at(address, timeout=0.3 if "0.3 s" in said else 10.0, retries=0)
        with pytest.raises(UserError) as caught:
            reward(["draw"] * 5, IMAGES, **COLUMNS)
    assert said in caught.value.message and address in caught.value.message


def test_what_passes_by_itself_is_asked_again() -> None:
    times: list[float] = []

    def flaky(body: dict[str, Any]) -> tuple[int, bytes]:
        times.append(time.monotonic())
        return (503, b"{}") if len(times) == 1 else bright(body)

    with serving(flaky) as (address, _, _):
        assert reward_at(address, retries=1)(["draw"] * 5, IMAGES, **COLUMNS)[3] == 1.0
    assert len(times) == 2 and times[1] - times[0] > 0.4


def test_an_address_where_nobody_is_is_said_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(bright) as (address, _, _):
        pass
    with pytest.raises(UserError, match=f"no connection to {address}"):
        reward_at(address)
    with pytest.raises(UsageError, match="address tcp://x is none"):
        reward_at("tcp://x")
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(UserError, match="MY_KEY is empty"):
        reward_at(address, key_env="MY_KEY")
    with pytest.raises(UsageError, match="function=http and its address belong together"):
        compose("flow_grpo_maze", ["rewards.mine={function:http}"])
    found = compose("flow_grpo_maze", ["rewards.mine={function:http,http:{address:'http://h:1/score'}}"])
    assert found.used_rewards["mine"].http.address == "http://h:1/score"  # type: ignore[attr-defined]
