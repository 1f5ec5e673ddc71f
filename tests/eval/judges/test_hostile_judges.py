"""Judges that misbehave (`tests.hostile`): each ends in an outcome with its reason, in bounded time and memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.eval.judges.criteria import Criteria
from tests.hostile import Hostile
from uni_train.config.schema import JudgeConfig
from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored
from uni_train.eval.judges import run
from uni_train.eval.judges.failures import mostly_failed
from uni_train.eval.judges.replies import Reply, ReplyStore
from uni_train.eval.judges.revision import with_served_revision
from uni_train.http_client import LETTERS_A_TOKEN


def judged(server: Hostile, folder: Path, progress: Any = None, **settings: Any) -> list[Scored]:
    benchmark = Criteria(2)
    config = JudgeConfig(model=f"{server.url}#judge", **{"retries": 0, "timeout": 60, **settings})
    return run(benchmark.samples(), benchmark, config, folder, progress)


def test_a_key_follows_no_redirect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-a-secret-of-ours")
    with Hostile("500", models=True) as other:
        with Hostile("redirect", models=True, to=other.url.removesuffix("/v1")) as server:
            judge = JudgeConfig(model=f"{server.url}#judge", key_env="MY_KEY")
            assert with_served_revision(judge) == judge
            with pytest.raises(UserError, match=rf"{server.url} is elsewhere \(307: .* redirects to {other.url}"):
                judged(server, tmp_path, key_env="MY_KEY")
        assert {key for _, key in server.asked} == {"Bearer sk-a-secret-of-ours"}
    assert other.asked == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behave", "why"),
    [
        ("endless", "sent more than 64 MiB"),
        ("bomb", "sent more than 64 MiB"),
        ("trickle", "nothing came from .* within 2 s"),
        ("wait for ever", "asks to wait inf s"),
        ("html", "sent no JSON .* but '<html>"),
        ("deep", "recursion limit"),
        ("nothing", "sent an empty reply"),
        ("null", "no chat completion at http.* but 'None'"),
    ],
)
def test_no_judge_takes_memory_or_time_beyond_its_limits(tmp_path: Path, behave: str, why: str) -> None:
    with Hostile(behave) as server:
        scored = judged(server, tmp_path, timeout=2 if "within" in why else 300)
        assert server.sent < 1 << 29  # it hung up
    assert {one.outcome for one in scored} == {"judge_failed"}
    for one in scored:
        assert re.search(why, one.replies[-1]), one.replies[-1]
        assert server.url in one.replies[-1] or behave == "wait for ever"
    assert "HTTP 502" not in mostly_failed(scored)


def test_a_reply_that_no_file_can_hold_is_stored_as_one_that_can(tmp_path: Path) -> None:
    with Hostile("surrogate") as server:
        first = judged(server, tmp_path, revision="r")
    assert first[0].outcome == "pass" and first[0].replies == ("\ufffd broken <answer>Yes</answer>",)
    asked = len(server.asked)
    assert judged(server, tmp_path, revision="r") == first and len(server.asked) == asked  # it is gone by now


def test_a_store_that_an_earlier_version_has_poisoned_is_read(tmp_path: Path) -> None:
    with ReplyStore(tmp_path) as store:
        store.put("k", Reply("\ud800 yes"))
    with ReplyStore(tmp_path) as store:
        assert store.damaged == [] and store.get("k") == Reply("\ufffd yes")


def test_a_text_far_beyond_the_tokens_that_were_allowed_is_cut(tmp_path: Path) -> None:
    """Its readers would take hours: some take time with the square of a text's length."""
    with Hostile("talking on") as server:
        # Retries: the server closes connections that the client meant to use again.
        scored = judged(server, tmp_path, way="chain_of_thought", max_tokens=64, retries=3)
    assert {one.outcome for one in scored} == {"unparseable"}
    assert {len(reply) for one in scored for reply in one.replies} == {64 * LETTERS_A_TOKEN}


def test_a_count_of_tokens_that_cannot_be_is_not_believed(tmp_path: Path) -> None:
    with Hostile("odd usage") as server:
        assert {one.outcome for one in judged(server, tmp_path)} == {"pass"}


@pytest.mark.slow
def test_somebody_who_waits_is_seen_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uni_train.eval.judges.judging.HEARTBEAT", 0.05)
    beats: list[int] = []

    class Watched:
        def say(self, text: str) -> None:
            return

        @contextmanager
        def bar(self, title: str, total: int, done: int = 0) -> Iterator[Any]:
            yield self

        def advance(self, by: int = 1, **figures: float) -> None:
            beats.append(by)

    with Hostile("silence") as server:
        judged(server, tmp_path, progress=Watched(), timeout=1)
    assert beats.count(0) >= 1 and beats.count(1) == 2
