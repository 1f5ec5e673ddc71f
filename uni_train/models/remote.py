"""Any OpenAI-compatible endpoint as a model that thinks, draws and answers; `uni_train serve` is one such.

An endpoint that says that it is `uni_train serve` is asked beside the protocol (seeds, thoughts), and its checkpoint is
known by content. Of any other, a seed may be ignored, a thought is asked for by a system prompt and drawn by as a part
of the prompt, and what is behind its name is only what the caller declares as `revision`.

The key comes from the environment, goes into the header of requests and nowhere else: no message, file or log has it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np

from uni_train.errors import UsageError, UserError, did_you_mean
from uni_train.models.bagel.prompts import THINK_THEN_DRAW
from uni_train.models.base import OnStep, Request, SkillMissing
from uni_train.models.batches import ModelDown
from uni_train.models.identity import ModelIdentity
from uni_train.models.pictures import data_url, decode_base64, decode_data_url, decode_picture, encode_png

Drawing = Literal["images", "chat"]
_LONGEST_MESSAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """How an endpoint is asked.

    Attributes:
        key_env: the environment variable with the key; None: OPENAI_API_KEY for OpenAI's own address, else no key (a
            key is never shown to a server that it was not meant for).
        revision: what is behind the model's name, where the endpoint does not say: part of the identity.
        connections: requests under way at once. timeout: seconds for one. retries: of a request that failed for a
            passing reason (no connection, 429, 5xx), with growing pauses.
        temperature, max_tokens: of texts; None: the server's.
        drawing: by /v1/images ("images"), or by chat completions that return pictures ("chat").
        think_system: the system prompt that asks for a thought, where the endpoint has no other way.
    """

    key_env: str | None = None
    revision: str = ""
    connections: int = 8
    timeout: float = 300.0
    retries: int = 5
    temperature: float | None = None
    max_tokens: int | None = None
    drawing: Drawing = "images"
    think_system: str = THINK_THEN_DRAW

    def __post_init__(self) -> None:
        for name, least in (("connections", 1), ("retries", 0), ("timeout", 0.1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} of a remote model must be at least {least}, not {getattr(self, name)}")


class RemoteModel:
    """A respondent (`eval.benchmark.Respondent`): a request that fails alone is an exception in its place.

    Raises, from every method: ModelDown where no request can be answered (the endpoint is away, refuses the key, has
    no such model, or is out of quota), SkillMissing where the endpoint says so.
    """

    def __init__(self, base_url: str, model: str, settings: RemoteSettings, about: Mapping[str, Any] | None) -> None:
        self.name = model
        self.base_url = base_url
        self.settings = settings
        self.ours = about is not None
        self._client, self._key = _client(base_url, settings)
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
        return cls(base_url, model, settings, (offered or {}).get(model))

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        """The reasoning before drawing."""
        return self._all(requests, self._think, on_step)

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        """A text reply to the images and the prompt."""
        return self._all(requests, lambda one: self._chat(self._messages(one), one.seed), on_step)

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray | Exception]:
        """Pictures uint8 [H, W, 3], by `request.thought` where it has one."""
        by = self._draw_in_chat if self.settings.drawing == "chat" else self._draw
        return self._all(requests, by, on_step)

    # --- one request -------------------------------------------------------------------------------------------------

    def _think(self, request: Request) -> str:
        if self.ours:
            return self._chat(self._messages(request), request.seed, {"skill": "think"})
        system = {"role": "system", "content": self.settings.think_system}
        return self._chat([system, *self._messages(request)], request.seed)

    def _chat(self, messages: list[dict[str, Any]], seed: int, more: Mapping[str, Any] | None = None) -> str:
        message = self._complete(messages, seed, more)
        if getattr(message, "refusal", None):
            raise UserError(f"refused: {message.refusal}")
        if not message.content:
            raise UserError("an empty reply")
        return str(message.content)

    def _complete(self, messages: list[dict[str, Any]], seed: int, more: Mapping[str, Any] | None) -> Any:
        asked = {"temperature": self.settings.temperature, "max_tokens": self.settings.max_tokens}
        reply = self._client.chat.completions.create(
            model=self.name,
            messages=messages,
            seed=seed,
            extra_body=dict(more or {}),
            **{name: value for name, value in asked.items() if value is not None},
        )
        if not reply.choices:
            raise UserError("a reply without any choice")
        return reply.choices[0].message

    def _draw(self, request: Request) -> np.ndarray:
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
            reply = self._client.images.edit(image=files, **asked)
        else:
            reply = self._client.images.generate(**asked)
        if not reply.data or not reply.data[0].b64_json:
            raise UserError("a reply without a picture in it (b64_json)")
        return decode_picture(decode_base64(reply.data[0].b64_json, "the picture"), "the picture")

    def _draw_in_chat(self, request: Request) -> np.ndarray:
        messages = self._messages(request)
        if request.thought is not None:
            messages += [
                {"role": "assistant", "content": request.thought},
                {"role": "user", "content": "Now draw the picture."},
            ]
        message = self._complete(messages, request.seed, {"modalities": ["image", "text"]})
        images = getattr(message, "images", None) or []
        for one in images:
            given = one.get("image_url") if isinstance(one, Mapping) else None
            url = given.get("url") if isinstance(given, Mapping) else given
            if isinstance(url, str):
                return decode_picture(decode_data_url(url, "the picture"), "the picture")
        raise UserError(f"a reply without a picture: {_short(message.content or '')!r}")

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        """One turn of the user: pictures, then the prompt."""
        if not request.images:
            return [{"role": "user", "content": request.prompt}]
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": data_url(encode_png(image))}} for image in request.images
        ]
        return [{"role": "user", "content": [*parts, {"type": "text", "text": request.prompt}]}]

    # --- many requests -----------------------------------------------------------------------------------------------

    def _all(self, requests: Sequence[Request], ask: Callable[[Request], Any], on_step: OnStep | None) -> list[Any]:
        """As many at once as there are connections; the first error that concerns all of them stops the rest."""
        answers: list[Any] = [None] * len(requests)
        passing = 0
        with ThreadPoolExecutor(self.settings.connections) as pool:
            places = {pool.submit(ask, request): i for i, request in enumerate(requests)}
            try:
                for done, future in enumerate(as_completed(places), start=1):
                    answers[places[future]], may_pass = self._outcome(future.exception(), future)
                    passing += may_pass
                    if on_step is not None:
                        on_step(done, len(requests))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if requests and passing == len(requests):
            raise ModelDown(
                f"{self.base_url} answers none of {len(requests)} requests: {answers[0]}",
                "See whether it is up; finished calls are kept, so run the same command again.",
            )
        return answers

    def _outcome(self, error: BaseException | None, future: Any) -> tuple[Any, bool]:
        """A request's answer or failure, and whether the failure may pass by itself."""
        if error is None:
            return future.result(), False
        if isinstance(error, UserError):
            return error, False
        import openai

        if not isinstance(error, openai.OpenAIError):
            raise error
        down = _down(error, self.base_url, self.name, self.settings, self._key)
        if down is not None:
            raise down
        said = _said(error, self._key)
        if getattr(error, "code", None) == "skill_missing":
            raise SkillMissing(self.name, said.partition(" cannot ")[2] or said)
        passes = isinstance(
            error,
            openai.APIConnectionError | openai.InternalServerError | openai.RateLimitError,
        )
        return UserError(said), passes

    def _asked(self, about: Mapping[str, Any] | None) -> dict[str, Any]:
        """What decides an answer besides the request; not how many at once, nor how patiently."""
        one = self.settings
        asked: dict[str, Any] = {"temperature": one.temperature, "max_tokens": one.max_tokens, "drawing": one.drawing}
        if about is None:
            return {**asked, "think_system": one.think_system}
        return {**asked, "server": dict(about["settings"])}


def _client(base_url: str, settings: RemoteSettings) -> tuple[Any, str]:
    """OpenAI's client and the key that it was given ("" for none)."""
    try:
        import openai
    except ImportError as error:
        raise UserError("openai is not installed, which remote models need", "pip install 'uni-train[eval]'") from error

    variable = settings.key_env or ("OPENAI_API_KEY" if _is_openai(base_url) else None)
    key = os.environ.get(variable, "") if variable else ""
    if variable and not key:
        raise UserError(f"the environment variable {variable} is empty", f"Put the key of {base_url} there.")
    client = openai.OpenAI(
        api_key=key or "none", base_url=base_url, timeout=settings.timeout, max_retries=settings.retries
    )
    return client, key


def _offered(base_url: str, settings: RemoteSettings) -> dict[str, Mapping[str, Any] | None] | None:
    """The endpoint's models, each with what `uni_train serve` says about it; None where it lists none."""
    import openai

    client, key = _client(base_url, settings)
    try:
        models = client.models.list().data
    except openai.NotFoundError:
        return None
    except openai.OpenAIError as error:
        down = _down(error, base_url, "", settings, key)
        if down is None and isinstance(error, openai.APIStatusError) and error.status_code in (405, 501):
            return None
        raise down or ModelDown(
            f"{base_url} does not answer: {_said(error, key)}", "Check the address, and whether it is up."
        ) from None
    found: dict[str, Mapping[str, Any] | None] = {}
    for one in models or []:
        about = (one.model_extra or {}).get("uni_train")
        ours = isinstance(about, Mapping) and "content" in about and isinstance(about.get("settings"), Mapping)
        found[one.id] = about if ours else None
    return found


def _down(error: Any, base_url: str, model: str, settings: RemoteSettings, key: str) -> ModelDown | None:
    """What concerns every request, as an error for people; None for what concerns one. The server's words are left out
    where they might repeat the key."""
    import openai

    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        named = settings.key_env or ("OPENAI_API_KEY" if key else None)
        if named is None:
            return ModelDown(f"{base_url} wants a key", "Put it into an environment variable and name that.")
        return ModelDown(f"{base_url} refuses the key in {named}", "Check the key; it is shown nowhere.")
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


def _short(text: str) -> str:
    line = " ".join(text.split())
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
