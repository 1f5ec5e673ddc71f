from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eval.judges.server import JudgeServer
from uni_train.errors import UsageError
from uni_train.eval.judges import JudgeConfig, Price
from uni_train.eval.judges.revision import with_served_revision
from uni_train.eval.last_seen import LastSeen


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "gpt-4o"}, "has no provider"),
        ({"model": " "}, "has no name"),
        ({"base_url": "127.0.0.1:8000"}, "no address"),
        ({"base_url": "http://x:99999999/v1"}, "no address"),
        ({"base_url": "http://me:secret@host/v1"}, "holds a user name"),
        ({"base_url": "https://host/v1?key=secret"}, "holds a user name, a password or parameters"),
        ({"dialect": "nanno"}, "no judge dialect"),
        ({"provider_args": {"api_key": "secret"}}, "a key has no place"),
        ({"max_connections": 0}, "max_connections must be at least 1"),
        ({"temperature": -1.0}, "must not be negative"),
        ({"cost_limit": 1.0}, "no price"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_secrets_are_not_shown(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        JudgeConfig(**{"model": "openai/gpt-4o", **settings})
    assert "secret" not in str(caught.value)


def test_names_as_inspect_ai_wants_them() -> None:
    assert JudgeConfig("google/gemini-2.5-pro").inspect_name == "google/gemini-2.5-pro"
    url = "http://127.0.0.1:8000/v1"
    assert JudgeConfig("google/gemma-3-27b-it", url).inspect_name == "served/google/gemma-3-27b-it"
    assert JudgeConfig("vllm/Qwen/Qwen2.5-VL-7B-Instruct", url).inspect_name == "vllm/Qwen/Qwen2.5-VL-7B-Instruct"


def test_identity_is_what_changes_replies() -> None:
    one = JudgeConfig("m", "http://a/v1")
    assert one.key != JudgeConfig("m", "http://b/v1").key != JudgeConfig("m", "http://b/v1", temperature=1.0).key
    assert one.key == JudgeConfig("m", "http://a/v1", attempts=1, max_connections=2, timeout=5, retries=0).key
    # A revision says what is served, wherever it is.
    assert JudgeConfig("m", "http://a/v1", revision="7").key == JudgeConfig("m", "http://b/v1", revision="7").key
    assert JudgeConfig("m", "http://a/v1", revision="7").key != JudgeConfig("m", "http://a/v1", revision="8").key


def test_prices_are_a_million_tokens() -> None:
    assert Price(1.25, 10.0).of(2_000_000, 500_000) == pytest.approx(7.5)


def test_a_server_that_says_what_it_serves_is_believed_and_remembered(tmp_path: Path) -> None:
    seen = LastSeen(tmp_path)
    with JudgeServer(
        lambda asked: "", models=[{"id": "nano", "uni_train": {"content": "abc"}}, {"id": "vlm"}]
    ) as server:
        served = JudgeConfig("nano", server.url)
        found = with_served_revision(served, seen)
        assert found == replace(served, served="abc")
        assert found.key == replace(served, revision="abc").key  # its replies are those of the revision
        for judge in (JudgeConfig("vlm", server.url), JudgeConfig("nano", server.url, revision="7")):
            assert with_served_revision(judge, seen) == judge
    assert with_served_revision(served, seen) == found  # nobody there
    assert with_served_revision(served, LastSeen(tmp_path / "other")) == with_served_revision(served) == served
    assert with_served_revision(JudgeConfig("openai/gpt-4o")) == JudgeConfig("openai/gpt-4o")
