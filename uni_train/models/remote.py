"""Any OpenAI-compatible endpoint as a model that thinks, draws and answers; `uni_train serve` is one such.

An endpoint that says that it is `uni_train serve` is asked beside the protocol (seeds, thoughts), and its checkpoint is
known by content. Any other endpoint may ignore the seed. A system prompt asks it for a thought, and the thought is
added to the prompt of the image. Its weights are unknown: the caller declares them as `revision`.

The key comes from the environment, goes into the header of requests and nowhere else: no message, file or log has it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import numpy as np

from uni_train.errors import UsageError, UserError, did_you_mean
from uni_train.http_limits import (
    LETTERS_A_TOKEN,
    PATIENCE,
    PICTURE_SECONDS,
    BadReply,
    NoReply,
    clean,
    get_json,
    limited,
)
from uni_train.models.bagel.prompts import THINK_THEN_DRAW
from uni_train.models.base import OnStep, Request, SkillMissing
from uni_train.models.batches import ModelDown
from uni_train.models.identity import ModelIdentity
from uni_train.models.pictures import data_url, decode_base64, decode_data_url, decode_picture, encode_png

if TYPE_CHECKING:
    import anyio
    import anyio.abc

Drawing = Literal["images", "chat"]
_LONGEST_MESSAGE = 500
_TOKENS = 8192  # of a text, at most, where the server's own limit holds
_HEARTBEAT = 1.0  # seconds between two signs that a reply is waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """How an endpoint is asked.

    Attributes:
        key_env: the environment variable with the key; None: OPENAI_API_KEY for OpenAI's own address, else no key (a
            key is never shown to a server that it was not meant for).
        revision: what is behind the model's name, where the endpoint does not say: part of the identity.
        connections: requests under way at once. timeout: seconds for one attempt, to its last byte. retries: of a
            request that failed for a passing reason (no connection, 429, 5xx), with growing pauses. patience: seconds
            for a request with all its retries. What a server may send is limited in `uni_train.http_limits`.
        temperature, max_tokens: of texts; None: the server's.
        drawing: by /v1/images ("images"), or by chat completions that return images ("chat").
        think_system: the system prompt that asks for a thought, where the endpoint has no other way.
    """

    key_env: str | None = None
    revision: str = ""
    connections: int = 8
    timeout: float = PICTURE_SECONDS
    retries: int = 5
    patience: float = PATIENCE
    temperature: float | None = None
    max_tokens: int | None = None
    drawing: Drawing = "images"
    think_system: str = THINK_THEN_DRAW

    def __post_init__(self) -> None:
        for name, least in (("connections", 1), ("retries", 0), ("timeout", 0.1), ("patience", 0.1)):
            if not getattr(self, name) >= least:  # NaN is none either
                raise UsageError(f"{name} of a remote model must be at least {least}, not {getattr(self, name)}")


class RemoteModel:
    """A respondent (`uni_train.eval.benchmark.Respondent`): a request that fails alone is an exception in its place.

    Raises, from every method: ModelDown where no request can be answered (the endpoint is away, refuses the key, has
    no such model, or is out of quota), SkillMissing where the endpoint says so, or lists the model and has no such
    address for it (404).
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        settings: RemoteSettings,
        about: Mapping[str, Any] | None,
        listed: bool = False,
    ) -> None:
        self.name = model
        self.listed = listed
        self._lacking: dict[str, SkillMissing] = {}
        self.base_url = base_url
        self.settings = settings
        self.ours = about is not None
        self._key = _key(base_url, settings)
        content = f"{base_url}#{model}"
        if about is not None:
            content = str(about["content"])
        if settings.revision:
            content = f"{model}@{settings.revision}"
        self.identity = ModelIdentity(model, f"{base_url}#{model}", content, self._asked(about))

    @classmethod
    def open(cls, address: str, settings: RemoteSettings) -> RemoteModel:
        """The model at "http://HOST:PORT/v1#MODEL"; without #MODEL, the only one there.

        Raises:
            UsageError: no such address, or several models there. ModelDown: nobody answers, or the key is refused.
        """
        base_url, _, model = address.partition("#")
        base_url = _checked(base_url)
        offered = _offered(base_url, settings)
        if not model:
            if offered is None or len(offered) != 1:
                names = ", ".join(offered or {}) or "unknown"
                raise UsageError(f"{base_url} does not say which model is meant", f"Write URL#MODEL; models: {names}.")
            model = next(iter(offered))
        if offered and model not in offered and any(one is not None for one in offered.values()):
            raise UsageError(f"{base_url} has no model {model}", did_you_mean(model, offered, "models there"))
        return cls(base_url, model, settings, (offered or {}).get(model), listed=model in (offered or {}))

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        """The reasoning before drawing."""
        return self._all(requests, self._think, on_step)

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        """A text reply to the images and the prompt."""
        return self._all(requests, self._answer, on_step)

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray | Exception]:
        """Images uint8 [H, W, 3], by `request.thought` where it has one."""
        by = self._draw_in_chat if self.settings.drawing == "chat" else self._draw
        return self._all(requests, by, on_step)

    def compose(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> list[list[str | np.ndarray] | Exception]:
        """Texts and images of one chat completion, in their order; images that come beside the text follow it."""
        if self.ours:
            raise SkillMissing(self.name, "answer with text and images in one pass")
        return self._all(requests, self._compose, on_step)

    # --- one request -------------------------------------------------------------------------------------------------

    async def _think(self, client: Any, request: Request) -> str:
        if self.ours:
            return await self._chat(client, self._messages(request), request.seed, {"skill": "think"})
        system = {"role": "system", "content": self.settings.think_system}
        return await self._chat(client, [system, *self._messages(request)], request.seed)

    async def _answer(self, client: Any, request: Request) -> str:
        return await self._chat(client, self._messages(request), request.seed)

    async def _chat(
        self, client: Any, messages: list[dict[str, Any]], seed: int, more: Mapping[str, Any] | None = None
    ) -> str:
        message = await self._complete(client, messages, seed, more)
        refusal, content = getattr(message, "refusal", None), getattr(message, "content", None)
        if refusal:
            raise UserError(f"refused: {_short(str(refusal))}")
        if not content or not isinstance(content, str):
            raise UserError("an empty reply")
        return content[: self._longest]

    async def _complete(
        self, client: Any, messages: list[dict[str, Any]], seed: int, more: Mapping[str, Any] | None
    ) -> Any:
        asked = {"temperature": self.settings.temperature, "max_tokens": self.settings.max_tokens}
        reply = await client.chat.completions.create(
            model=self.name,
            messages=messages,
            seed=seed,
            extra_body=dict(more or {}),
            **{name: value for name, value in asked.items() if value is not None},
        )
        message = getattr(_first(reply, "choices"), "message", None)
        if message is None:
            raise UserError("a reply without any choice")
        return message

    async def _draw(self, client: Any, request: Request) -> np.ndarray:
        more: dict[str, Any] = {} if _is_openai(self.base_url) else {"seed": request.seed}
        prompt = request.prompt
        if request.thought is not None and self.ours:
            more["thought"] = request.thought
        elif request.thought is not None:
            prompt = f"{prompt}\n\n{request.thought}"
        asked: dict[str, Any] = {"model": self.name, "prompt": prompt, "n": 1, "extra_body": more}
        if request.size is not None:
            asked["size"] = f"{request.size[1]}x{request.size[0]}"
        if self.name.startswith("dall-e"):  # the newer ones refuse the parameter and need none
            asked["response_format"] = "b64_json"
        if request.images:
            files = [(f"{i}.png", encode_png(image), "image/png") for i, image in enumerate(request.images)]
            reply = await client.images.edit(image=files, **asked)
        else:
            reply = await client.images.generate(**asked)
        given = getattr(_first(reply, "data"), "b64_json", None)
        if not given or not isinstance(given, str):
            raise UserError("a reply without an image in it (b64_json)")
        return decode_picture(decode_base64(given, "the image"), "the image")

    async def _draw_in_chat(self, client: Any, request: Request) -> np.ndarray:
        messages = self._messages(request)
        if request.thought is not None:
            messages += [
                {"role": "assistant", "content": request.thought},
                {"role": "user", "content": "Now draw the picture."},
            ]
        message = await self._complete(client, messages, request.seed, {"modalities": ["image", "text"]})
        for url in _image_urls(getattr(message, "images", None)):
            return decode_picture(decode_data_url(url, "the image"), "the image")
        raise UserError(f"a reply without an image: {_short(str(getattr(message, 'content', '')))!r}")

    async def _compose(self, client: Any, request: Request) -> list[str | np.ndarray]:
        message = await self._complete(client, self._messages(request), request.seed, {"modalities": ["image", "text"]})
        refusal, content = getattr(message, "refusal", None), getattr(message, "content", None)
        if refusal:
            raise UserError(f"refused: {_short(str(refusal))}")
        parts: list[str | np.ndarray] = []
        for one in content if isinstance(content, list) else [{"text": content}]:
            said = one.get("text") if isinstance(one, Mapping) else one
            if isinstance(said, str) and said.strip():
                parts.append(said[: self._longest])
            parts += [decode_picture(decode_data_url(url, "an image"), "an image") for url in _image_urls([one])]
        beside = _image_urls(getattr(message, "images", None))
        parts += [decode_picture(decode_data_url(url, "an image"), "an image") for url in beside]
        if not parts:
            raise UserError("an empty reply")
        return parts

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        """One turn of the user: images, then the prompt."""
        if not request.images:
            return [{"role": "user", "content": request.prompt}]
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": data_url(encode_png(image))}} for image in request.images
        ]
        return [{"role": "user", "content": [*parts, {"type": "text", "text": request.prompt}]}]

    # --- many requests -----------------------------------------------------------------------------------------------

    def _all(
        self, requests: Sequence[Request], ask: Callable[[Any, Request], Awaitable[Any]], on_step: OnStep | None
    ) -> list[Any]:
        """As many at once as there are connections; the first error that concerns all of them stops the rest.

        on_step is called once a second too, so that a server that does not answer is seen to be waited for.
        """
        import anyio

        if ask.__name__ in self._lacking:
            raise self._lacking[ask.__name__]
        answers: list[Any] = [None] * len(requests)
        passing = done = 0
        fatal: Exception | None = None

        async def one(place: int, client: Any, tasks: anyio.abc.TaskGroup, slots: anyio.Semaphore) -> None:
            nonlocal passing, done, fatal
            async with slots:
                try:
                    answers[place], may_pass = await self._outcome(client, ask, requests[place])
                except Exception as error:
                    fatal = fatal or error
                    tasks.cancel_scope.cancel()
                    return
            passing, done = passing + may_pass, done + 1
            if on_step is not None:
                on_step(done, len(requests))

        async def heartbeat() -> None:
            while on_step is not None:
                await anyio.sleep(_HEARTBEAT)
                on_step(done, len(requests))

        async def everything() -> None:
            slots = anyio.Semaphore(self.settings.connections)
            async with _client(self.base_url, self._key, self.settings) as client, anyio.create_task_group() as waiting:
                waiting.start_soon(heartbeat)
                async with anyio.create_task_group() as tasks:
                    for place in range(len(requests)):
                        tasks.start_soon(one, place, client, tasks, slots)
                waiting.cancel_scope.cancel()

        anyio.run(everything)
        if fatal is not None:
            if isinstance(fatal, SkillMissing) and not self.ours:  # of ours only some requests may need it
                self._lacking[ask.__name__] = fatal
            raise fatal
        if requests and passing == len(requests):
            raise ModelDown(
                f"{self.base_url} answers none of {len(requests)} requests: {answers[0]}",
                "See whether it is up; finished calls are kept, so run the same command again.",
            )
        return answers

    async def _outcome(
        self, client: Any, ask: Callable[[Any, Request], Awaitable[Any]], request: Request
    ) -> tuple[Any, bool]:
        """A request's answer or failure, and whether the failure may pass by itself. Raises what concerns all."""
        import anyio
        import openai

        try:
            with anyio.fail_after(self.settings.patience):
                return await ask(client, request), False
        except UserError as error:
            return error, False
        except TimeoutError:
            return UserError(f"nothing came from {self.base_url} within {self.settings.patience:g} s"), True
        except openai.OpenAIError as error:
            return self._failure(error)

    def _failure(self, error: Any) -> tuple[UserError, bool]:
        import openai

        if self.listed and not self.ours and isinstance(error, openai.NotFoundError):
            where = error.request.url.path.rpartition("/v1/")[2]
            raise SkillMissing(self.name, f"be asked by {where}: {_said(error, self._key)}")
        down = _down(error, self.base_url, self.name, self.settings, self._key)
        if down is not None:
            raise down
        if isinstance(error, openai.APITimeoutError):
            return UserError(f"nothing came from {self.base_url} within {self.settings.timeout:g} s"), True
        said = _said(error, self._key)
        if getattr(error, "code", None) == "skill_missing":
            raise SkillMissing(self.name, said.partition(" cannot ")[2] or said)
        passes = isinstance(
            error,
            openai.APIConnectionError | openai.InternalServerError | openai.RateLimitError,
        )
        return UserError(said), passes

    @property
    def _longest(self) -> int:
        """Letters of a text."""
        return (self.settings.max_tokens or _TOKENS) * LETTERS_A_TOKEN

    def _asked(self, about: Mapping[str, Any] | None) -> dict[str, Any]:
        """What decides an answer besides the request; not how many at once, nor how patiently."""
        one = self.settings
        asked: dict[str, Any] = {"temperature": one.temperature, "max_tokens": one.max_tokens, "drawing": one.drawing}
        if about is None:
            return {**asked, "think_system": one.think_system}
        return {**asked, "server": dict(about["settings"])}


def _key(base_url: str, settings: RemoteSettings) -> str:
    """The key that is sent there, "" for none. Raises UserError: the variable is empty, or openai is not installed."""
    try:
        import openai  # noqa: F401
    except ImportError as error:
        raise UserError("openai is not installed, which remote models need", "pip install -e '.[eval]'") from error
    variable = settings.key_env or ("OPENAI_API_KEY" if _is_openai(base_url) else None)
    key = os.environ.get(variable, "") if variable else ""
    if variable and not key:
        raise UserError(f"the environment variable {variable} is empty", f"Put the key of {base_url} there.")
    return key


def _client(base_url: str, key: str, settings: RemoteSettings) -> Any:
    """OpenAI's client, with the limits of `uni_train.http_limits`."""
    import openai

    http = limited(openai.DefaultAsyncHttpxClient(), settings.timeout)
    return openai.AsyncOpenAI(
        api_key=key or "none",
        base_url=base_url,
        http_client=http,
        timeout=settings.timeout,
        max_retries=settings.retries,
    )


def _offered(base_url: str, settings: RemoteSettings) -> dict[str, Mapping[str, Any] | None] | None:
    """The endpoint's models, each with what `uni_train serve` says about it; None where it lists none."""
    key = _key(base_url, settings)
    try:
        status, said = get_json(f"{base_url}/models", key or "none", retries=settings.retries)
    except (NoReply, BadReply) as error:
        text = str(error).replace(key, "***") if key else str(error)
        raise ModelDown(f"{base_url} does not answer: {text}", "Check the address, and whether it is up.") from None
    if status in (404, 405, 501):
        return None
    if status != 200:
        raise (
            _refused(base_url, settings, key)
            if status in (401, 403)
            else ModelDown(f"{base_url} does not list its models: it answers {status}", "Check the address.")
        )
    models = said.get("data") if isinstance(said, Mapping) else None
    found: dict[str, Mapping[str, Any] | None] = {}
    for one in models if isinstance(models, list) else []:
        if isinstance(one, Mapping) and isinstance(one.get("id"), str):
            about = one.get("uni_train")
            ours = isinstance(about, Mapping) and "content" in about and isinstance(about.get("settings"), Mapping)
            found[one["id"]] = about if ours else None
    return found


def _refused(base_url: str, settings: RemoteSettings, key: str) -> ModelDown:
    named = settings.key_env or ("OPENAI_API_KEY" if key else None)
    if named is None:
        return ModelDown(f"{base_url} wants a key", "Put it into an environment variable and name that.")
    return ModelDown(f"{base_url} refuses the key in {named}", "Check the key; it is shown nowhere.")


def _down(error: Any, base_url: str, model: str, settings: RemoteSettings, key: str) -> ModelDown | None:
    """What concerns every request, as an error for people; None for what concerns one. The server's words are left out
    where they might repeat the key."""
    import openai

    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return _refused(base_url, settings, key)
    if isinstance(error, openai.NotFoundError):
        return ModelDown(f"{base_url} has no model {model}, or cannot do this: {_said(error, key)}", "Check both.")
    if isinstance(error, openai.RateLimitError) and error.code == "insufficient_quota":
        return ModelDown(f"{base_url}: the quota is used up", "Finished calls are kept; continue when there is more.")
    return None


def _said(error: Any, key: str) -> str:
    """The server's message, without the key."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, Mapping) else None
    text = str(message or getattr(error, "message", "") or type(error).__name__)
    return _short(text.replace(key, "***") if key else text)


def _first(reply: Any, name: str) -> Any:
    """The first of a list in a reply, whatever the server has put there; None where there is none."""
    found = getattr(reply, name, None)
    return found[0] if isinstance(found, list) and found else None


def _image_urls(given: Any) -> list[str]:
    """The addresses in a list of {"image_url": {"url": ...}} or {"image_url": ...}; anything else is left out."""
    found = [one.get("image_url") for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    urls = [one.get("url") if isinstance(one, Mapping) else one for one in found]
    return [url for url in urls if isinstance(url, str)]


def _short(text: str) -> str:
    line = " ".join(clean(text).split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}..."


def _is_openai(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def _checked(address: str) -> str:
    """The address with its /v1, if it is one and holds no secrets."""
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, valid = urlsplit(""), False
    if not valid:
        raise UsageError(f"{address!r} is no address of a model", "Write http://HOST:PORT/v1#MODEL.")
    if parts.username or parts.password or parts.query:
        # Not shown: it may hold a key.
        raise UsageError(
            f"the address at {parts.hostname} holds a user name, a password or parameters",
            "Put the key into an environment variable and name that.",
        )
    return address.rstrip("/") if parts.path.strip("/") else f"{address.rstrip('/')}/v1"
