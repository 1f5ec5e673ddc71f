"""Any OpenAI-compatible endpoint as a model that thinks, draws and answers; `uni_train serve` is one such.

An endpoint that identifies itself as `uni_train serve` gets more than the protocol has (seeds, thoughts). Its
checkpoint is known by content. Any other endpoint may ignore the seed. A system prompt asks it for a thought, and the
thought is added to the prompt of the image. Its weights are unknown: the caller declares them as `revision`.

The key comes from the environment, goes into the header of requests and nowhere else: no message, file or log has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from uni_train.addresses import SERVICES, checked_address, key_for, key_variable
from uni_train.config.schema import RemoteConfig
from uni_train.errors import UsageError, UserError, did_you_mean
from uni_train.http_client import (
    LETTERS_A_TOKEN,
    REDIRECTS,
    BadReply,
    Client,
    NoReply,
    Refused,
    ask_all,
    clean,
    get_json,
    served_content,
)
from uni_train.models.bagel.prompts import THINK_THEN_DRAW
from uni_train.models.base import OnStep, Request, SkillMissing
from uni_train.models.batches import ModelDown
from uni_train.models.identity import ModelIdentity
from uni_train.models.pictures import data_url, decode_base64, decode_data_url, decode_picture, encode_png

_LONGEST_MESSAGE = 500
_ABOUT = 10.0  # seconds for what a server says of itself, with retries
_TOKENS = 8192  # of a text, at most, where the server's own limit holds


class RemoteModel:
    """A respondent (`uni_train.eval.benchmark.Respondent`): a request that fails alone is an exception in its place.

    Every method raises ModelDown if no request can be answered: the endpoint is away, refuses the key, has no such
    model, or is out of quota. It raises SkillMissing if the endpoint says so, or if it lists the model without such an
    address (404).
    """

    def __init__(self, base_url: str, model: str, settings: RemoteConfig, listed: Mapping[str, Any] | None) -> None:
        """listed: what /v1/models says of the model; None where it is not there."""
        self.name, self.base_url, self.settings, self.listed = model, base_url, settings, listed is not None
        self.on_fingerprint: Callable[[str], None] = lambda fingerprint: None  # of each reply that has one
        self._lacking: dict[str, SkillMissing] = {}
        self._key = key_for(base_url, settings.key_env)
        about = (listed or {}).get("uni_train")
        self.ours = isinstance(about, Mapping) and "content" in about and isinstance(about.get("settings"), Mapping)
        reported = served_content(listed or {})
        self.identified = bool(settings.revision or reported)
        content = reported if self.ours else f"{base_url}#{model}" + (f"@{reported}" if reported else "")
        if settings.revision:
            content = f"{model}@{settings.revision}"
        self.identity = ModelIdentity(model, f"{base_url}#{model}", content, self._asked(about if self.ours else None))

    @classmethod
    def open(cls, address: str, settings: RemoteConfig) -> RemoteModel:
        """The model at "http://HOST:PORT/v1#MODEL"; without #MODEL, the only one there.

        Raises:
            UsageError: no such address, or several models there. ModelDown: nobody answers, or the key is refused.
        """
        base_url, _, model = address.partition("#")
        base_url = checked_address(base_url)
        offered = _offered(base_url, settings)
        if not model:
            if offered is None or len(offered) != 1:
                names = ", ".join(offered or {}) or "unknown"
                raise UsageError(f"{base_url} does not say which model is meant", f"Write URL#MODEL; models: {names}.")
            model = next(iter(offered))
        if offered and model not in offered and any("uni_train" in row for row in offered.values()):
            raise UsageError(f"{base_url} has no model {model}", did_you_mean(model, offered, "models there"))
        return cls(base_url, model, settings, (offered or {}).get(model))

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

    async def _think(self, client: Client, request: Request) -> str:
        if self.ours:
            return await self._chat(client, self._messages(request), request.seed, {"skill": "think"})
        system = {"role": "system", "content": self.settings.think_system or THINK_THEN_DRAW}
        return await self._chat(client, [system, *self._messages(request)], request.seed)

    async def _answer(self, client: Client, request: Request) -> str:
        return await self._chat(client, self._messages(request), request.seed)

    async def _chat(
        self, client: Client, messages: list[dict[str, Any]], seed: int, more: Mapping[str, Any] | None = None
    ) -> str:
        message = await self._complete(client, messages, seed, more or {})
        content = message.get("content")
        if not content or not isinstance(content, str):
            raise UserError("an empty reply")
        return content[: self._longest]

    async def _complete(
        self, client: Client, messages: list[dict[str, Any]], seed: int, more: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The message of a chat completion."""
        limits = {"temperature": self.settings.temperature, "max_tokens": self.settings.max_tokens}
        body = {"model": self.name, "messages": messages, "seed": seed, **more}
        body |= {name: value for name, value in limits.items() if value is not None}
        reply = await client.ask(f"{self.base_url}/chat/completions", body)
        if isinstance(reply, Mapping) and isinstance(reply.get("system_fingerprint"), str):
            self.on_fingerprint(reply["system_fingerprint"])
        message = _first(reply, "choices").get("message")
        if not isinstance(message, Mapping):
            raise UserError("a reply without any choice")
        if message.get("refusal"):
            raise UserError(f"refused: {_short(str(message['refusal']))}")
        return message

    async def _draw(self, client: Client, request: Request) -> np.ndarray:
        prompt = request.prompt
        if request.thought is not None and not self.ours:
            prompt = f"{prompt}\n\n{request.thought}"
        asked: dict[str, Any] = {"model": self.name, "prompt": prompt, "n": 1}
        if key_variable(self.base_url) != SERVICES["openai"][1]:  # which refuses what it does not know
            asked["seed"] = request.seed
        if request.thought is not None and self.ours:
            asked["thought"] = request.thought
        if request.size is not None:
            asked["size"] = f"{request.size[1]}x{request.size[0]}"
        if self.name.startswith("dall-e"):  # the newer ones refuse the parameter and need none
            asked["response_format"] = "b64_json"
        if request.images:
            reply = await client.ask(f"{self.base_url}/images/edits", form=partial(_form, asked, request.images))
        else:
            reply = await client.ask(f"{self.base_url}/images/generations", asked)
        given = _first(reply, "data").get("b64_json")
        if not given or not isinstance(given, str):
            raise UserError("a reply without an image in it (b64_json)")
        return decode_picture(decode_base64(given, "the image"), "the image")

    async def _draw_in_chat(self, client: Client, request: Request) -> np.ndarray:
        messages = self._messages(request)
        if request.thought is not None:
            messages += [
                {"role": "assistant", "content": request.thought},
                {"role": "user", "content": "Now draw the picture."},
            ]
        message = await self._complete(client, messages, request.seed, {"modalities": ["image", "text"]})
        for url in _image_urls(message.get("images")):
            return decode_picture(decode_data_url(url, "the image"), "the image")
        raise UserError(f"a reply without an image: {_short(str(message.get('content', '')))!r}")

    async def _compose(self, client: Client, request: Request) -> list[str | np.ndarray]:
        message = await self._complete(client, self._messages(request), request.seed, {"modalities": ["image", "text"]})
        content = message.get("content")
        parts: list[str | np.ndarray] = []
        for one in content if isinstance(content, list) else [{"text": content}]:
            said = one.get("text") if isinstance(one, Mapping) else one
            if isinstance(said, str) and said.strip():
                parts.append(said[: self._longest])
            parts += [decode_picture(decode_data_url(url, "an image"), "an image") for url in _image_urls([one])]
        beside = _image_urls(message.get("images"))
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
        self, requests: Sequence[Request], ask: Callable[[Client, Request], Awaitable[Any]], on_step: OnStep | None
    ) -> list[Any]:
        """As many at once as there are connections; the first error that concerns all of them stops the rest.

        on_step is called once a second too.
        """
        if ask.__name__ in self._lacking:
            raise self._lacking[ask.__name__]
        answers: list[Any] = [None] * len(requests)
        passing = done = 0

        def report() -> None:
            if on_step is not None:
                on_step(done, len(requests))

        async def answer(client: Client, place: int) -> None:
            nonlocal passing, done
            may_pass = False  # whether a failure may pass by itself
            try:
                answers[place] = await ask(client, requests[place])
            except UserError as error:
                answers[place] = error
            except Refused as error:
                answers[place], may_pass = self._failure(error)
            except (NoReply, BadReply) as error:
                answers[place], may_pass = UserError(str(error)), True
            passing, done = passing + may_pass, done + 1
            report()

        try:
            ask_all(range(len(requests)), answer, self._key, self.settings, beat=report)
        except SkillMissing as error:
            if not self.ours:  # of ours only some requests may need it
                self._lacking[ask.__name__] = error
            raise
        if requests and passing == len(requests):
            raise ModelDown(
                f"{self.base_url} answers none of {len(requests)} requests: {answers[0]}",
                "See whether it is up; finished calls are kept, so run the same command again.",
            )
        return answers

    def _failure(self, error: Refused) -> tuple[UserError, bool]:
        """A request's failure, and whether it may pass by itself. Raises what concerns all requests."""
        words = _short(error.reason)
        if error.status in (401, 403):
            raise _refused(self.base_url, self.settings)
        if error.status == 404:
            if self.listed and not self.ours:
                raise SkillMissing(self.name, f"be asked by {error.url.removeprefix(self.base_url + '/')}: {words}")
            raise ModelDown(f"{self.base_url} has no model {self.name}, or cannot do this: {words}", "Check both.")
        if error.code == "insufficient_quota":
            hint = "Finished calls are kept; continue when there is more."
            raise ModelDown(f"{self.base_url}: the quota is used up", hint)
        if error.code == "skill_missing":
            raise SkillMissing(self.name, words.partition(" cannot ")[2] or words)
        return UserError(words), error.passes or error.status in REDIRECTS

    @property
    def _longest(self) -> int:
        """Letters of a text."""
        return (self.settings.max_tokens or _TOKENS) * LETTERS_A_TOKEN

    def _asked(self, about: Mapping[str, Any] | None) -> dict[str, Any]:
        """What decides an answer besides the request; not how many at once, nor how patiently."""
        one = self.settings
        asked: dict[str, Any] = {"temperature": one.temperature, "max_tokens": one.max_tokens, "drawing": one.drawing}
        if about is None:
            return {**asked, "think_system": one.think_system or THINK_THEN_DRAW}
        return {**asked, "server": dict(about["settings"])}


def _offered(base_url: str, settings: RemoteConfig) -> dict[str, Mapping[str, Any]] | None:
    """The endpoint's models, each with what it says about them; None where it lists none."""
    key = key_for(base_url, settings.key_env)
    try:
        listed = get_json(f"{base_url}/models", key, replace(settings, timeout=_ABOUT, patience=_ABOUT))
    except Refused as error:
        if error.status in (404, 405, 501):
            return None
        if error.status in (401, 403):
            raise _refused(base_url, settings) from None
        raise ModelDown(f"{base_url} does not list its models: {error}", "Check the address.") from None
    except (NoReply, BadReply) as error:
        raise ModelDown(f"{base_url} does not answer: {error}", "Check the address, and whether it is up.") from None
    models = listed.get("data") if isinstance(listed, Mapping) else None
    rows = [row for row in (models if isinstance(models, list) else []) if isinstance(row, Mapping)]
    return {row["id"]: row for row in rows if isinstance(row.get("id"), str)}


def _refused(base_url: str, settings: RemoteConfig) -> ModelDown:
    variable = key_variable(base_url, settings.key_env)
    if variable is None:
        return ModelDown(f"{base_url} wants a key", "Put it into an environment variable and name that: key_env.")
    return ModelDown(f"{base_url} refuses the key in {variable}", "Check the key; it is shown nowhere.")


def _form(fields: Mapping[str, Any], images: Sequence[np.ndarray]) -> Any:
    """A form of texts and PNG files."""
    import aiohttp

    form = aiohttp.FormData()
    for name, value in fields.items():
        form.add_field(name, str(value))
    for number, image in enumerate(images):
        form.add_field("image[]", encode_png(image), filename=f"{number}.png", content_type="image/png")
    return form


def _first(reply: Any, name: str) -> Mapping[str, Any]:
    """The first of a list in a reply, whatever the server has put there; empty where there is none."""
    listed = reply.get(name) if isinstance(reply, Mapping) else None
    return listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], Mapping) else {}


def _image_urls(given: Any) -> list[str]:
    """The addresses in a list of {"image_url": {"url": ...}} or {"image_url": ...}; anything else is left out."""
    found = [one.get("image_url") for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    urls = [one.get("url") if isinstance(one, Mapping) else one for one in found]
    return [url for url in urls if isinstance(url, str)]


def _short(text: str) -> str:
    line = " ".join(clean(text).split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}..."
