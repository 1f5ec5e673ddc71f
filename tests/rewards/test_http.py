"""A reward behind an address: what it is sent, what it may send back, and what ends the run with the address."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import numpy as np
import pytest

from tests.rewards.server import Reply, serving
from uni_train.config.compose import compose
from uni_train.config.schema import HttpRewardConfig, RewardConfig
from uni_train.data_gen.registry import get_task
from uni_train.errors import UsageError, UserError
from uni_train.models.pictures import decode_png
from uni_train.rewards.contract import Reward, Scoring
from uni_train.rewards.http import Http

IMAGES = [np.full((24, 24, 3), value, np.uint8) for value in (0, 100, 200, 250, 50)]
COLUMNS = {"id": list("abcde"), "images": [[IMAGES[1]], [], [], [], []]}


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
        asked = Reward("bright", reward, apart=60.0)
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
        (sends('{"scores": [1, 2, NaN, 4, 5]}'), "scored an image of c nan"),
        (sends('{"scores": [1, 2, 3, 4, "5"]}'), "scored an image of e '5'"),
        (sends('{"scores": [1, 2, 1' + "0" * 400 + ", 4, 5]}"), "scored an image of c 1000"),
        (sends("dear friend"), "sent no JSON"),
        (sends('{"detail": "bad image"}', 422), "answers 422: bad image"),
    ],
)
def test_what_is_no_score_ends_the_run_with_the_address(reply: Reply, said: str) -> None:
    with serving(reply) as (address, _, _), pytest.raises(UserError) as caught:
        reward_at(address, timeout=60.0, retries=0)(["draw"] * 5, IMAGES, **COLUMNS)
    assert said in caught.value.message and address in caught.value.message


def test_what_does_not_come_is_waited_for_so_long() -> None:
    ended = threading.Event()
    with serving(lambda body: (200, b"{}" if ended.wait() else b"")) as (address, _, _):
        with pytest.raises(UserError, match=r"nothing came from .* within 0\.3 s"):
            reward_at(address, timeout=0.3, retries=0)(["draw"] * 5, IMAGES, **COLUMNS)
        ended.set()


def test_what_passes_by_itself_is_asked_again() -> None:
    def flaky(body: dict[str, Any]) -> tuple[int, bytes]:
        return (503, b"{}") if len(seen) == 1 else bright(body)

    with serving(flaky) as (address, seen, _):
        assert reward_at(address, retries=1)(["draw"] * 5, IMAGES, **COLUMNS)[3] == 1.0
        assert len(seen) == 2


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
