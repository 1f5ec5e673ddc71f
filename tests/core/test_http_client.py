from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest

from tests.hostile import Hostile, Listening
from uni_train.config.schema import ServerConfig
from uni_train.core.http_client import BadReply, NoReply, asked_wait, clean, get_json, parsed, reason


def test_texts_can_be_stored() -> None:
    """Half pairs are replaced, whole ones are one character, bytes that are no UTF-8 do not end anything."""
    assert clean("a\ud800b") == "a\ufffdb" and clean("\ud83d\ude00") == "\U0001f600" and clean("à 日") == "à 日"
    assert parsed(rb'{"\udc00": ["\ud83d\ude00", {"a": "\ud800"}]}') == {"\ufffd": ["\U0001f600", {"a": "\ufffd"}]}
    json.dumps(parsed(b'["\xed\xa0\x80\xff"]'), ensure_ascii=False).encode()
    for data in (b"", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000):
        with pytest.raises(ValueError):
            parsed(data)
    assert reason(b'{"error": {"message": "no\\nword"}}') == "no word" and len(reason(b"x" * 10_000)) == 500


def test_a_wait_that_is_asked_for() -> None:
    found = [asked_wait(one) for one in (None, "2.5", "-3", "inf", "nan", "Sun, 22 Nov 2026 16:15:21 GMT")]
    assert found == [None, 2.5, 0.0, float("inf"), None, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behave", "kind", "message"),
    [
        ("redirect", BadReply, "redirects to http://127.0.0.1:.*not followed"),
        ("endless", BadReply, "more than 64 MiB"),
        ("bomb", BadReply, "more than 64 MiB"),
        ("trickle", NoReply, "nothing came from http://127.0.0.1:.* within 1 s"),
        ("trickling headers", NoReply, "within 1 s"),
        ("silence", NoReply, "within 1 s"),
        ("hang up", NoReply, "no connection to http://127.0.0.1"),
        ("html", BadReply, "sent no JSON .*It works!"),
        ("deep", BadReply, "recursion limit"),
        ("500", BadReply, "answers 500: no"),
        ("wait for ever", BadReply, "asks to wait inf s"),
    ],
)
def test_what_is_no_reply_is_an_error_that_names_the_address(behave: str, kind: type[Exception], message: str) -> None:
    with Hostile("500", models=True) as other:
        to = other.url.removesuffix("/v1")
        with Hostile(behave, models=True, to=to) as server, pytest.raises(kind, match=message) as caught:
            limit = 1 if "within" in message else 300  # only what never ends is ended by time
            get_json(f"{server.url}/models", "a-key", ServerConfig(retries=0, timeout=limit))
        assert server.url in str(caught.value)
        assert other.asked == [] and {key for _, key in server.asked} == {"Bearer a-key"}


def test_what_of_a_key_is_sent_and_taken_out_of_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local servers take any key, and "null" and "x" are in most replies; a key as services give it is taken out."""
    (tmp_path / "netrc").write_text("default login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    came = {"null": "Bearer null", "x": "Bearer x", "sk-a-secret-of-ours": "Bearer [key]", "": ""}
    with Hostile("echo", models=True) as server:
        for key, shown in came.items():
            reply = get_json(f"{server.url}/models", key, ServerConfig(retries=0))
            assert reply == {"key": shown, "text": "next", "none": None}
    assert [sent for _, sent in server.asked] == [f"Bearer {key}" if key else "" for key in came]


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Hostile("echo", models=True) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        get_json("http://a.judge.test/v1/models", "a-key", ServerConfig(retries=0))
        assert proxy.asked == [("http://a.judge.test/v1/models", "Bearer a-key")]


class Closed(BaseHTTPRequestHandler):
    """A proxy that takes no login; `came` has what it was asked, and by whom."""

    came: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.came.append((self.path, self.headers.get("Proxy-Authorization")))
        self.send_response(407)
        self.end_headers()

    do_CONNECT = do_GET


@pytest.mark.parametrize(("scheme", "path"), [("http", "http://judge.test/v1/models"), ("https", "judge.test:443")])
def test_a_proxy_s_login_goes_to_it_and_into_no_message(
    scheme: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Closed.came.clear()
    with Listening(Closed) as proxy:
        at = proxy.url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv(f"{scheme}_proxy", f"http://me:s3cr3t@{at}")
        with pytest.raises((NoReply, BadReply), match=f"the proxy of {scheme}_proxy") as caught:
            get_json(f"{scheme}://judge.test/v1/models", "a-key", ServerConfig(retries=0))
    assert Closed.came == [(path, "Basic bWU6czNjcjN0")]
    assert "s3cr3t" not in str(caught.value) and "407" in str(caught.value)
