"""The one client of servers that may be broken or hostile: of judges and remote models.

The client bounds the size of a reply after decompression and the total time of a request. It also bounds the wait that
a server may ask for. No redirect is followed: a key goes to the address that it was given for and nowhere else. Text is
made such that it can be stored: JSON can hold half a surrogate pair, which UTF-8 cannot.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from uni_train.core.addresses import SERVICES, proxy_for
from uni_train.core.errors import UserError

if TYPE_CHECKING:
    from uni_train.config.schema import ServerConfig

T = TypeVar("T")
HEARTBEAT = 1.0
"""Seconds between two signs that replies are waited for."""
MOST_BYTES = 64 << 20
"""Of a reply's body, compressed or not."""
LONGEST_WAIT = 120.0
"""Seconds that a server may ask for (Retry-After). One that asks for more is not asked again."""
LETTERS_A_TOKEN = 32
"""Of a reply's text, at most, for each token that was allowed: a server that sends more has ignored the limit, and
readers whose time grows with the square of a text would take minutes."""
SECRET = 8
"""Letters of a key that is taken out of replies. What local servers take, such as "x" or "EMPTY", is in many words."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds between retries: twice as long each time, at random up to half more."""

REDIRECTS = (301, 302, 303, 307, 308)
PASSING = (408, 409, 425, 429)
"""Statuses below 500 that may pass by themselves."""
_LONGEST = 500  # letters of a reason
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


class NoReply(Exception):
    """Nothing came: no connection, or out of time. The message names the address."""


class BadReply(Exception):
    """What came is no reply: too large, damaged, no JSON. The message names the address, and says what came."""


class Refused(BadReply):
    """The server answered with an error or a redirect.

    Attributes:
        status: of HTTP. reason: the server's words, without the key. code: the error's own, such as insufficient_quota.
        wait: seconds that it asks to wait. to: where a redirect leads.
    """

    def __init__(
        self, url: str, status: int, reason: str, code: object = None, wait: float | None = None, to: str = ""
    ) -> None:
        super().__init__(f"{url} answers {status}: {reason}")
        self.url, self.status, self.reason, self.code, self.wait, self.to = url, status, reason, code, wait, to

    @property
    def passes(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status in PASSING or self.status >= 500


def clean(text: str) -> str:
    """Half surrogate pairs as U+FFFD; whole ones as the character that they stand for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parsed(data: bytes) -> Any:
    """The JSON in `data`, its texts `clean`. ValueError for anything else, and for what is nested too deeply."""
    from pydantic_core import from_json

    text = data.decode("utf-8", errors="replace")
    try:
        return from_json(text)
    except ValueError:
        if not _HALF_PAIR.search(text):
            raise
    try:
        return from_json(clean(json.dumps(json.loads(text), ensure_ascii=False)))
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def key_header(url: str, key: str) -> dict[str, str]:
    """A bearer token, but where Google is asked by its own protocol."""
    parts = urlsplit(url)
    if parts.hostname == urlsplit(SERVICES["google"][0]).hostname and "/openai/" not in parts.path:
        return {"x-goog-api-key": key}
    return {"Authorization": f"Bearer {key}"}


def asked_wait(header: str | None) -> float | None:
    """Seconds of a Retry-After; None for none, a date, or no number. May be infinite."""
    try:
        seconds = math.nan if header is None else float(header)
    except ValueError:
        return None
    return None if math.isnan(seconds) else max(0.0, seconds)


class Client:
    """Asks servers within the limits; an async context manager.

    Args:
        key: sent in a header, "" for none, and taken out of whatever comes back, if it has `SECRET` letters.
        config: seconds, retries and pauses.
    """

    def __init__(self, key: str, config: ServerConfig) -> None:
        self.key, self.config = key, config

    async def __aenter__(self) -> Client:
        try:
            import aiohttp
        except ImportError as error:
            raise UserError("aiohttp is not installed, which asks servers", "pip install -e '.[eval]'") from error
        self._http = aiohttp.ClientSession(
            headers={"Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            connector=aiohttp.TCPConnector(limit=0),  # callers limit them
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.close()

    async def ask(self, url: str, body: Any = None, form: Callable[[], Any] | None = None, once: bool = False) -> Any:
        """The JSON that answers a GET, a POST of a JSON `body`, or one of the `aiohttp.FormData` that `form` makes.

        Raises:
            NoReply, Refused, BadReply: as `read`, or no JSON.
        """
        content = await self.read(url, body, form, once=once)
        try:
            return parsed(content)
        except ValueError as error:
            shown = " ".join(content[:200].decode("utf-8", errors="replace").split())
            came = f"no JSON ({error}) but {shown!r}" if content.strip() else "an empty reply"
            raise BadReply(f"{url} sent {came}") from None

    async def read(
        self, url: str, body: Any = None, form: Callable[[], Any] | None = None, *, with_key: bool = True,
        once: bool = False,
    ) -> bytes:  # fmt: skip
        """The bytes that answer what `ask` sends. with_key: False for a server that the key is not for. once: what the
        server may have begun, and bill, is not sent again.

        Raises:
            NoReply, Refused, BadReply: after all retries of what may pass by itself. The key is in none.
            UserError: the environment's proxy cannot be used.
        """
        import aiohttp
        import anyio

        config, proxy = self.config, proxy_for(url)
        at = f"{url} through the proxy of {proxy[0]}" if proxy else url
        problem: NoReply | Refused | None = None
        until = time.monotonic() + config.patience
        for attempt in range(config.retries + 1):
            wait: float | None = None
            try:
                with anyio.fail_after(max(0.01, min(config.timeout, until - time.monotonic()))):
                    return await self._once(url, body, form, with_key, proxy or ("", None, {}))
            except TimeoutError:
                limit = config.patience if time.monotonic() >= until else config.timeout
                problem = NoReply(f"nothing came from {at} within {limit:g} s")
            except (aiohttp.ClientError, OSError) as error:
                problem = NoReply(f"no connection to {at} ({clean(str(error)) or type(error).__name__})")
            except Refused as error:
                wait = error.wait
                if not error.passes or (wait is not None and wait > LONGEST_WAIT):
                    raise
                problem = error
            pause = max(min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(1.0, 1.5), wait or 0.0)
            begun = once and not (isinstance(problem, Refused) and problem.status in PASSING)
            if begun or attempt == config.retries or time.monotonic() + pause >= until:
                break
            await anyio.sleep(pause)
        assert problem is not None
        raise problem

    async def _once(
        self, url: str, body: Any, form: Callable[[], Any] | None, with_key: bool,
        proxy: tuple[str, str | None, dict[str, str]],
    ) -> bytes:  # fmt: skip
        variable, address, login = proxy
        how = {"json": body} if form is None else {"data": form()}
        how["headers"] = key_header(url, self.key) if self.key and with_key else {}
        if not url.startswith("https:"):  # else the server would get it
            how["headers"] |= login
        method = "GET" if body is None and form is None else "POST"
        # Not aiohttp's trust_env: it sends passwords of ~/.netrc in the place of the key.
        how |= {"proxy": address, "proxy_headers": login}
        async with self._http.request(method, url, **how, allow_redirects=False) as response:
            status = response.status
            if status in REDIRECTS:
                to = response.headers.get("location", "")
                refusal = f"{url} redirects to {to[:200] or 'nowhere'}, which is not followed: give that address"
                raise Refused(url, status, refusal, to=to)
            received = bytearray()
            async for part in response.content.iter_any():  # decompressed
                received += part
                if len(received) > MOST_BYTES:
                    raise BadReply(f"{url} sent more than {MOST_BYTES >> 20} MiB in reply, which is not read further")
        content = bytes(received)
        if len(self.key) >= SECRET:
            content = content.replace(self.key.encode(), b"[key]")
        if not 200 <= status < 300:
            wait = asked_wait(response.headers.get("retry-after"))
            late = wait is not None and wait > LONGEST_WAIT
            more = f" (it asks to wait {wait:,g} s, and is waited for {LONGEST_WAIT:g} s at most)" if late else ""
            by = f"the proxy of {variable} wants another login: " if variable and status == 407 else ""
            raise Refused(url, status, by + reason(content) + more, _code(content), wait)
        return content


def ask_all(
    items: Iterable[T],
    ask: Callable[[Client, T], Awaitable[None]],
    key: str,
    config: ServerConfig,
    *,
    workers: int | None = None,
    beat: Callable[[], object] = lambda: None,
) -> None:
    """Await `ask` with one client for each item, in their order; it keeps what it receives.

    Args:
        key, config: of the client. workers: so many at once; None: `config.connections`.
        beat: called every `HEARTBEAT` seconds, so that a server that does not answer is seen to be waited for.

    Raises:
        Exception: the first that `ask` raises; it cancels the others.
    """
    import anyio

    todo = iter(items)

    async def work(client: Client) -> None:
        for item in todo:
            await ask(client, item)

    async def keep_beating() -> None:
        while True:
            await anyio.sleep(HEARTBEAT)
            beat()

    async def everything() -> None:
        async with Client(key, config) as client, anyio.create_task_group() as waiting:
            waiting.start_soon(keep_beating)
            async with anyio.create_task_group() as tasks:
                for _ in range(workers or config.connections):
                    tasks.start_soon(work, client)
            waiting.cancel_scope.cancel()

    try:
        anyio.run(everything)
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def get_json(url: str, key: str, config: ServerConfig) -> Any:
    """The JSON at an address. Raises as `Client.ask`."""
    received: list[Any] = []

    async def get(client: Client, at: str) -> None:
        received.append(await client.ask(at))

    ask_all([url], get, key, config)
    return received[0]


_TELLING = ("root", "parent", "revision", "version", "digest", "meta")  # of vLLM, SGLang, llama.cpp and gateways


def served_content(listed: Mapping[str, Any]) -> str:
    """Which weights /v1/models says that a model is: a hash, "" where it says nothing but the name.

    `uni_train serve` reports the hash of the checkpoint's files. Other servers report where the weights lie, or their
    sizes, which is hashed.
    """
    about = listed.get("uni_train")
    if isinstance(about, Mapping):
        return str(about.get("content", ""))
    described = {name: listed[name] for name in _TELLING if listed.get(name) not in (None, "", {}, listed.get("id"))}
    plain = json.dumps(described, sort_keys=True, default=str)
    return hashlib.blake2b(plain.encode(), digest_size=8).hexdigest() if described else ""


def without_refused(body: dict[str, Any], reason: str, optional: Sequence[str]) -> str:
    """Take the parameter that a refusal names out of `body`, and return its name; "" for none of `optional`.

    `max_tokens` stays, by the newer name `max_completion_tokens`, where the reason has that name.
    """
    if "max_tokens" in body and "max_completion_tokens" in reason:
        body["max_completion_tokens"] = body.pop("max_tokens")
        return "max_tokens"
    name = next((name for name in optional if name in body and re.search(rf"\b{name}\b", reason)), "")
    body.pop(name, None)
    return name


def _code(content: bytes) -> object:
    """The code of an error, where the body of a refusal has one."""
    try:
        return parsed(content)["error"]["code"]
    except (ValueError, LookupError, TypeError):
        return None


def reason(data: bytes) -> str:
    """The message in the body of an error, in whichever of the usual places the server has put it; on one line."""
    try:
        content = parsed(data)
    except ValueError:
        content = data.decode("utf-8", errors="replace")
    for name in ("error", "detail", "message"):
        if isinstance(content, Mapping) and name in content:
            content = content[name]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return " ".join(text[:_LONGEST].split()) or "no reason given"
