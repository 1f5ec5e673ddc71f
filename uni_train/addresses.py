"""Addresses of servers, and which key goes there: one rule for judges and remote models."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from uni_train.errors import UsageError, UserError

SERVICES = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai", "GOOGLE_API_KEY"),
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "grok": ("https://api.x.ai/v1", "XAI_API_KEY"),
}
"""Services with OpenAI's protocol: name -> address, and the variable with the key."""


def key_variable(url: str, key_env: str | None = None) -> str | None:
    """The environment variable whose key is sent to `url`: the named one, else that of the service at the address.

    None: no key is sent. A key of one service is never shown to another server.
    """
    host = urlsplit(url).hostname or ""
    known = {urlsplit(address).hostname or "": variable for address, variable in SERVICES.values()}
    return key_env or next((name for at, name in known.items() if host == at or host.endswith(f".{at}")), None)


def key_for(url: str, key_env: str | None = None) -> str:
    """The key that is sent to `url`, "" for none. Raises UserError: its variable is empty."""
    variable = key_variable(url, key_env)
    key = os.environ.get(variable, "").strip() if variable else ""
    if variable and not key:
        raise UserError(f"the environment variable {variable} is empty", f"Put the key of {url} there.")
    return key


@contextmanager
def held_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port of this machine that nobody else is given meanwhile; a server that sets SO_REUSEADDR can listen there."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        yield int(holder.getsockname()[1])


def checked_address(url: str) -> str:
    """The address without a slash at its end, with /v1 where it has no path. Raises UsageError without secrets."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, valid = urlsplit(""), False
    if not valid:
        raise UsageError(f"{url!r:.80} is no address of a model", "Write http://HOST:PORT/v1#MODEL.")
    if parts.username or parts.password or parts.query:
        raise UsageError(
            f"the address at {parts.hostname} holds a user name, a password or parameters",
            "Put the key into an environment variable and name that: key_env.",
        )
    return url.rstrip("/") if parts.path.strip("/") else f"{url.rstrip('/')}/v1"
