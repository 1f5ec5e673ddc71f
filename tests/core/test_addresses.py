"""Who may ask a server of this machine, and which proxy stands before those of others."""

from __future__ import annotations

import pytest

from uni_train.core.addresses import foreign, is_local, proxy_for
from uni_train.core.errors import UserError

HERE = "127.0.0.1:8000"


def test_pages_of_other_sites_are_refused() -> None:
    for host, origin in (
        (HERE, None),
        ("localhost:8000", "http://localhost:3000"),
        ("LOCALHOST", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("127.9.9.9", None),
        ("a.localhost:1", None),
    ):
        assert foreign(host, origin) is None, (host, origin)
    others = ("evil.test:8000", "localhost.evil.test", "127.0.0.1.evil.test", "192.168.0.7:8000", "[", "", None)
    assert {(foreign(host, None) or "").split()[0] for host in others} == {"Host"}
    pages = ("http://evil.test", "https://evil.test:8000", "null", "http://localhost@evil.test")
    assert {(foreign(HERE, origin) or "").split()[0] for origin in pages} == {"Origin"}
    assert not any(map(is_local, ("", "evil.test", "localhost.evil.test", "10.0.0.1", "8.8.8.8", "fe80::1")))


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, "http://judge.test/v1", None),
        ({"http_proxy": "http://h:1"}, "http://judge.test/v1", ("http_proxy", "http://h:1", "")),
        ({"HTTPS_PROXY": "http://h:1"}, "https://judge.test/v1", ("HTTPS_PROXY", "http://h:1", "")),
        ({"http_proxy": "h:1"}, "http://judge.test/v1", ("http_proxy", "http://h:1", "")),
        ({"http_proxy": "http://[::1]:1/"}, "http://judge.test/v1", ("http_proxy", "http://[::1]:1", "")),
        ({"https_proxy": "https://h"}, "https://judge.test/v1", ("https_proxy", "https://h", "")),
        ({"http_proxy": "http://me:p%40s@h:1"}, "http://judge.test/v1", ("http_proxy", "http://h:1", "bWU6cEBz")),
        ({"http_proxy": "http://me:你@h:1"}, "http://judge.test/v1", ("http_proxy", "http://h:1", "bWU65L2g")),
        ({"http_proxy": "http://h:1", "no_proxy": "judge.test"}, "http://judge.test/v1", None),
        ({"http_proxy": "http://h:1"}, "https://judge.test/v1", None),
        *(({"http_proxy": "http://h:1"}, f"http://{own}:8000/v1", None) for own in (
            "127.0.0.1", "localhost", "[::1]", "127.1.2.3", "0.0.0.0", "a.localhost"
        )),
    ],
)  # fmt: skip
def test_servers_of_this_machine_are_asked_without_the_proxy_of_the_environment(
    variables: dict[str, str], url: str, proxy: tuple[str, str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = proxy_for(url)
    assert (found and (*found[:2], found[2].get("Proxy-Authorization", "").removeprefix("Basic "))) == proxy


@pytest.mark.parametrize(
    "proxy",
    ["socks5://me:secret@h:1", "http://me:secret@h:x", "http://me:secret@h:99999", "http://", "ftp://h", "[", "h:0"],
)
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(UserError, match="the proxy in https_proxy cannot be used") as caught:
        proxy_for("https://judge.test/v1")
    assert "secret" not in str(caught.value) and "judge.test in no_proxy" in (caught.value.hint or "")
