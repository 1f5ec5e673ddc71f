"""Limits for asking servers that may be broken or hostile: one place for judges and remote models.

A reply has a largest size (after decompression), a request a longest time in all, and a server a longest wait that it
may ask for. No redirect is followed: a key goes to the address that it was given for and nowhere else. Text is made
such that it can be stored: JSON can hold half a surrogate pair, which UTF-8 cannot.

`limited` puts these limits on a client of httpx, whoever uses it (the openai library, inspect-ai).
"""

from __future__ import annotations

import importlib
import json
import math
import re
import time
import zlib
from collections.abc import Mapping
from typing import Any

from uni_train.data_gen.reading_limits import DEPTH, shallow

MOST_BYTES = 64 << 20
"""Of a reply's body, compressed or not."""
ANSWER_SECONDS, PICTURE_SECONDS = 120.0, 300.0
"""For one attempt of a judge, of a model that may draw: from connecting to the last byte."""
PATIENCE = 600.0
"""Seconds for a request with all its retries and pauses."""
LONGEST_WAIT = 120.0
"""Seconds that a server may ask for (Retry-After). One that asks for more is not asked again."""
LETTERS_A_TOKEN = 32
"""Of a reply's text, at most, for each token that was allowed: a server that sends more has ignored the limit, and
readers whose time grows with the square of a text would take minutes."""
ABOUT_SECONDS = 10.0
"""For what a server says of itself (/v1/models), with retries."""

REDIRECTS = (301, 302, 303, 307, 308)
PASSING = (408, 409, 425, 429)
"""Statuses below 500 that may pass by themselves."""
_LONGEST = 500  # letters of a reason
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_OWN_HEADERS = ("content-encoding", "content-length", "transfer-encoding", "content-type", "retry-after")


class BadReply(Exception):
    """What came is no reply: too large, damaged, a redirect, no JSON. The message names the address."""


class NoReply(Exception):
    """Nothing came: no connection, or out of time. The message names the address."""


def clean(text: str) -> str:
    """Half surrogate pairs as U+FFFD; whole ones as the character that they stand for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parsed(data: bytes) -> Any:
    """The JSON in `data`, its texts `clean`. ValueError for anything else, and for what is nested too deeply."""
    try:
        value = json.loads(data.decode("utf-8", errors="replace"))
        if data.count(b"[") + data.count(b"{") > DEPTH and not shallow(value):
            raise ValueError("its JSON is nested too deeply")
        return _cleaned(value) if _HALF_PAIR.search(data) else value
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): _cleaned(one) for name, one in value.items()}
    return [_cleaned(one) for one in value] if isinstance(value, list) else value


class Body:
    """A reply's body while it arrives: `add` its parts, then take `decoded`. Raises BadReply beyond MOST_BYTES."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._data = bytearray()

    def add(self, part: bytes) -> None:
        self._data += part
        self._check(self._data)

    def decoded(self, encoding: str | None) -> bytes:
        """As the header Content-Encoding says; clients ask for none, some gateways compress all the same."""
        if encoding in (None, "", "identity"):
            return bytes(self._data)
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise BadReply(f"{self._url} compresses its reply ({encoding!r}), which it was not asked to")
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, as its first bytes say
        try:
            found = inflater.decompress(bytes(self._data), MOST_BYTES + 1)
        except zlib.error:
            raise BadReply(f"{self._url} sent damaged {encoding}") from None
        self._check(found)
        return found

    def _check(self, data: bytes | bytearray) -> None:
        if len(data) > MOST_BYTES:
            raise BadReply(f"{self._url} sent more than {MOST_BYTES >> 20} MiB in reply, which is not read further")


def asked_wait(header: str | None) -> float | None:
    """Seconds of a Retry-After; None for none, a date, or no number. May be infinite."""
    try:
        found = math.nan if header is None else float(header)
    except ValueError:
        return None
    return None if math.isnan(found) else max(0.0, found)


def too_long(wait: float) -> str:
    """What is said of a server that asks for more than LONGEST_WAIT."""
    return f"it asks to wait {wait:,g} s, and is waited for {LONGEST_WAIT:g} s at most"


def redirected(url: str, location: str | None) -> str:
    """What is said of a redirect."""
    return f"{url} redirects to {(location or 'nowhere')[:200]}, which is not followed: give that address instead"


def limited(client: Any, seconds: float) -> Any:
    """A client of httpx (`AsyncClient`) that reads whole replies within the limits; the same client.

    seconds: for one attempt. A reply that breaks a limit becomes one with status 502 and the reason as its message,
    which is not to be tried again; one that takes too long raises httpx's ReadTimeout.
    """
    send = client.send

    async def bounded(request: Any, *, stream: bool = False, **how: Any) -> Any:
        import anyio

        request.headers["Accept-Encoding"] = "identity"
        url = str(request.url.copy_with(query=None, fragment=None))
        try:
            with anyio.fail_after(seconds):
                response = await send(request, stream=True, **{**how, "follow_redirects": False})
                try:
                    return await _within(response, request, url)
                finally:
                    await response.aclose()
        except TimeoutError:
            library = importlib.import_module(type(request).__module__.partition(".")[0])
            raise library.ReadTimeout(f"no whole reply from {url} within {seconds:g} s", request=request) from None

    client.send = bounded
    return client


async def _within(response: Any, request: Any, url: str) -> Any:
    """The same response with its body read and checked, or one that says why not."""
    headers = {name: value for name, value in response.headers.multi_items() if name.lower() not in _OWN_HEADERS}
    status, kind = response.status_code, response.headers.get("content-type", "application/json")
    wait = asked_wait(response.headers.get("retry-after"))
    if wait is not None and wait <= LONGEST_WAIT:
        headers["retry-after"] = f"{wait:g}"
    problem = redirected(url, response.headers.get("location")) if status in REDIRECTS else ""
    content = b""
    try:
        if not problem:
            body = Body(url)
            async for part in response.aiter_raw():
                body.add(part)
            content = body.decoded(response.headers.get("content-encoding"))
            if status == 200 and not kind.startswith("text/event-stream"):
                content, kind = _as_json(content, url), "application/json"
    except BadReply as error:
        problem = str(error)
    if not problem and status >= 400 and wait is not None and wait > LONGEST_WAIT:
        problem = f"{url}: {too_long(wait)}"
    if problem:
        status = status if status >= 400 else 502
        headers["x-should-retry"] = "false"  # obeyed by the openai library
        content, kind = json.dumps({"error": {"message": problem}}).encode(), "application/json"
    return type(response)(status, headers={**headers, "content-type": kind}, content=content, request=request)


def _as_json(content: bytes, url: str) -> bytes:
    try:
        value = parsed(content)
    except ValueError as error:
        said = " ".join(content[:200].decode("utf-8", errors="replace").split())
        raise BadReply(f"{url} sent no JSON ({error}) but {said!r}") from None
    return json.dumps(value).encode() if _HALF_PAIR.search(content) else content


def get_json(url: str, key: str, seconds: float = ABOUT_SECONDS, retries: int = 0) -> tuple[int, Any]:
    """GET with a bearer token: the status, and the JSON that came with a 200.

    retries: of what may pass, within the same `seconds`, with growing pauses.

    Raises:
        NoReply: no connection, or out of time. BadReply: a redirect, no JSON, too large. The key is in neither.
    """
    import anyio

    return anyio.run(_get_json, url, key, seconds, retries)


async def _get_json(url: str, key: str, seconds: float, retries: int) -> tuple[int, Any]:
    async with limited(library().AsyncClient(timeout=seconds), seconds) as client:
        status, found = await ask_json(client, url, key, seconds, retries, refused=True)
    return status, found


async def ask_json(
    client: Any,
    url: str,
    key: str,
    seconds: float,
    retries: int,
    body: Any = None,
    patience: float | None = None,
    refused: bool = False,
) -> tuple[int, Any]:
    """GET, or POST of a JSON `body`, with a bearer token (an empty key: without) by a `limited` client.

    Args:
        seconds: for one attempt. patience: for all of them with their pauses; None: `seconds`, too.
        retries: of what may pass by itself; running out of time does not.
        refused: return the status of a request that is refused (below 500), with None.

    Raises:
        NoReply, BadReply: as `get_json`; also a refused request, unless `refused`.
    """
    import anyio

    http = library()
    until = time.monotonic() + (seconds if patience is None else patience)
    how: dict[str, Any] = {"headers": {"Authorization": f"Bearer {key}"} if key else {}}
    if body is not None:
        how["json"] = body
    for attempt in range(retries + 1):
        wait = None
        try:
            with anyio.fail_after(max(0.1, min(seconds, until - time.monotonic()))):
                response = await client.request("GET" if body is None else "POST", url, **how)
        except (TimeoutError, http.TimeoutException):
            raise NoReply(f"no reply from {url} within {seconds:g} s") from None
        except (http.HTTPError, http.InvalidURL, OSError, ValueError) as error:
            problem: Exception = NoReply(f"no connection to {url} ({clean(str(error)) or type(error).__name__})")
        else:
            status: int = response.status_code
            if status == 200:
                return status, parsed(response.content)
            why = reason(response.content).replace(key or "\0", "[key]")
            if status == 502 and response.headers.get("x-should-retry") == "false":
                raise BadReply(why)
            if status not in PASSING and status < 500 and refused:
                return status, None
            problem = BadReply(f"{url} answers {status}: {why}")
            if status not in PASSING and status < 500:
                raise problem
            wait = asked_wait(response.headers.get("retry-after"))
        pause = max(0.5 * 2**attempt, wait or 0.0)
        if attempt == retries or time.monotonic() + pause > until:
            raise problem
        await anyio.sleep(pause)
    raise AssertionError("not reached")


def library() -> Any:
    """httpx, as the installed openai library has it: httpx2 from its version 3 on."""
    try:
        return importlib.import_module("httpx2")
    except ImportError:
        return importlib.import_module("httpx")


def reason(data: bytes) -> str:
    """The message in the body of an error, in whichever of the usual places the server has put it; on one line."""
    try:
        found = parsed(data)
    except ValueError:
        found = data.decode("utf-8", errors="replace")
    for name in ("error", "detail", "message"):
        if isinstance(found, Mapping) and name in found:
            found = found[name]
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return " ".join(text[:_LONGEST].split()) or "no reason given"
