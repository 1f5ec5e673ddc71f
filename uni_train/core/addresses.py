"""Addresses of servers, who may ask ours, and which key and proxy others get: one rule for judges and remote models."""

from __future__ import annotations

import os
import re
import socket
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from uni_train.core.errors import UsageError, UserError

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
HEADERS = 10.0
"""Seconds for the headers of a request to a server of ours."""
_HTTP = ("http", "https")
_HOST = re.compile(r"^(?:https?://)?\[?(.*?)\]?(?::\d+)?$")  # of the headers Host and Origin


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


def _parts(url: str, schemes: Sequence[str] = _HTTP) -> SplitResult | None:
    """Those of an address of HTTP; None: it is none."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in schemes and parts.hostname and (parts.port is None or parts.port > 0):
            return parts
    return None


def checked_address(url: str, form: str = "http://HOST:PORT/v1#MODEL") -> str:
    """The address without a slash at its end, with /v1 where it has no path. Raises UsageError without secrets."""
    parts = _parts(url)
    if parts is None:
        raise UsageError(f"{url!r:.80} is no address of a model", f"Write {form}.")
    if parts.username or parts.password or parts.query:
        raise UsageError(
            f"the address at {parts.hostname} holds a user name, a password or parameters",
            "Put the key into an environment variable and name that: key_env.",
        )
    return url.rstrip("/") if parts.path.strip("/") else f"{url.rstrip('/')}/v1"


def is_local(host: str) -> bool:
    """Whether a name or address always means this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower().rpartition(".")[2] == "localhost"
    return address.is_loopback or address.is_unspecified


def foreign(host: str | None, origin: str | None) -> str | None:
    """Why a server for its own machine alone refuses a request with these headers; None: it does not.

    Any page in a browser can send requests here, and Origin names its site. Host has the page's own name where that
    name's owner has led it here (DNS rebinding).
    """
    for header, value in (("Host", host or ""), ("Origin", origin or "localhost")):
        if not is_local(_HOST.sub(r"\1", value)):
            return f"{header} is {value!r:.80}: this server answers its own machine alone"
    return None


def proxy_for(url: str, schemes: Sequence[str] = _HTTP) -> tuple[str, str, dict[str, str]] | None:
    """The environment's proxy for a server of another machine: its variable, its address, and its login as a header.

    schemes: of proxies that the client knows. Raises UserError, without the login: it cannot be used.
    """
    scheme, host = urlsplit(url).scheme, urlsplit(url).hostname or ""
    given = None if is_local(host) or proxy_bypass(host) else getproxies().get(scheme)
    if not given:
        return None
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY")
    variable = next((name for name in names if os.environ.get(name)), "the system's settings")
    proxy = _parts(given if "://" in given else f"http://{given}", schemes)
    if proxy is None:
        hint = f"Write {variable}=http://HOST:PORT, or name {host} in no_proxy."
        raise UserError(f"the proxy in {variable} cannot be used for {url}", hint)
    login = b64encode(f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()).decode()
    headers = {"Proxy-Authorization": f"Basic {login}"} if proxy.username else {}
    return variable, f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}", headers
