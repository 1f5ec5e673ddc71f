from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eval.judges.server import JudgeServer
from tests.hostile import Hostile
from uni_train.addresses import key_for
from uni_train.config.build import build_section
from uni_train.config.schema import JudgeConfig
from uni_train.errors import UsageError, UserError
from uni_train.eval.judges import with_served_revision
from uni_train.eval.last_seen import LastSeen


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "gpt-4o"}, "'gpt-4o' is no judge"),
        ({"model": "vllm/Qwen"}, "is no judge"),
        ({"model": "http://x:99999999/v1#m"}, "no address"),
        ({"model": "http://host/v1"}, "does not say which model"),
        ({"model": "http://me:secret@host/v1#m"}, "holds a user name"),
        ({"model": "https://host/v1?key=secret#m"}, "holds a user name, a password or parameters"),
        ({"dialect": "nanno"}, "judge.dialect must be one of paper, nano"),
        ({"extra_body": {"api_key": "secret"}}, "a key has no place"),
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"cost_limit": 1.0}, "needs a price"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_secrets_are_not_shown(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem.removeprefix("judge.")) as caught:
        build_section(JudgeConfig, {"model": "openai/gpt-4o", **settings})
    assert "secret" not in str(caught.value)


def test_one_rule_says_which_key_goes_where(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "GOOGLE_API_KEY", "MY_KEY"):
        monkeypatch.setenv(variable, f" {variable.lower()} ")
    assert JudgeConfig(model="google/gemini-2.5-pro").address.endswith("/v1beta/openai#gemini-2.5-pro")
    for model, key_env, key in (
        ("openai/gpt-4o", None, "openai_api_key"),
        ("https://eu.api.openai.com/v1#gpt-4o", None, "openai_api_key"),
        ("google/gemini-2.5-pro", None, "google_api_key"),
        ("openai/gpt-4o", "MY_KEY", "my_key"),
        ("http://127.0.0.1:8000/v1#m", None, ""),
        ("https://notapi.openai.com.example/v1#m", None, ""),
        ("http://127.0.0.1:8000/v1#m", "MY_KEY", "my_key"),
    ):
        assert key_for(JudgeConfig(model=model).address, key_env) == key
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(UserError, match="OPENAI_API_KEY is empty"):
        key_for(JudgeConfig(model="openai/gpt-4o").address)


def test_identity_is_what_changes_replies() -> None:
    one, two = JudgeConfig(model="http://a/v1#m"), JudgeConfig(model="http://b/v1#m")
    assert one.key != two.key != replace(two, temperature=1.0).key
    assert one.key == replace(one, attempts=1, connections=2, timeout=5, retries=0).key
    # An address is read as that of a remote model is.
    assert all(JudgeConfig(model=f"http://a{end}#m").key == one.key for end in ("", "/", "/v1/"))
    assert JudgeConfig(model="http://a#m").address == "http://a/v1#m"
    # A revision says what is served, wherever it is.
    assert replace(one, revision="7").key == replace(two, revision="7").key != replace(one, revision="8").key
    assert replace(one, price=(1.25, 10.0)).dollars(2_000_000, 500_000) == pytest.approx(7.5)  # of a million tokens


def test_a_server_that_says_what_it_serves_is_believed_and_remembered(tmp_path: Path) -> None:
    seen = LastSeen(tmp_path)
    models = [{"id": "nano", "uni_train": {"content": "abc"}}, {"id": "vlm"}, {"id": "v", "root": "/a"}]
    with JudgeServer(lambda asked: "", models=models) as server:
        served = JudgeConfig(model=f"{server.url}#nano")
        found = with_served_revision(served, seen)
        assert found == replace(served, served="abc")
        assert found.key == replace(served, revision="abc").key  # its replies are those of the revision
        for judge in (JudgeConfig(model=f"{server.url}#vlm"), JudgeConfig(model=f"{server.url}#nano", revision="7")):
            assert with_served_revision(judge, seen) == judge
        other = with_served_revision(JudgeConfig(model=f"{server.url}#v"))
        assert other.served.startswith(f"{server.url}@"), "vLLM says where its weights lie"
    assert with_served_revision(served, seen) == found  # nobody there
    with Hostile("500", models=True) as gateway:
        behind = JudgeConfig(model=f"{gateway.url}#nano")
        seen.keep({"judge": "nano", "at": gateway.url}, {"content": "abc"})
        for _ in range(2):  # whose error is not taken for another model, and not remembered
            assert with_served_revision(behind, seen).served == "abc"
    assert with_served_revision(served, LastSeen(tmp_path / "other")) == with_served_revision(served) == served
    assert with_served_revision(JudgeConfig(model="openai/gpt-4o")) == JudgeConfig(model="openai/gpt-4o")
