"""A model behind an endpoint, which thinks, draws and answers; `uni_train serve` is one such.

`RemoteConfig.text` and `RemoteConfig.drawing` name the dialects that it is asked in (uni_train.models.dialects).

An endpoint that identifies itself as `uni_train serve` gets more than the protocol has (seeds, thoughts). Its
checkpoint is known by content. Any other endpoint may ignore the seed. A system prompt asks it for a thought, and the
thought is added to the prompt of the image. Its weights are unknown: the caller declares them as `revision`.

The key comes from the environment, goes into the header of requests and nowhere else: no message, file or log has it.
It goes to the endpoint alone: an image at another host is fetched without it, and only with permission.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urljoin

import numpy as np

from uni_train.config.schema import RemoteConfig
from uni_train.core.addresses import checked_address, key_for, key_variable
from uni_train.core.errors import UsageError, UserError, did_you_mean, first_line
from uni_train.core.http_client import (
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
    without_refused,
)
from uni_train.models import completions
from uni_train.models.base import OnStep, Request, SkillMissing
from uni_train.models.batches import ModelDown
from uni_train.models.completions import Address, Completion
from uni_train.models.dialects import THINK_THEN_DRAW, Call, Dialect, Endpoint, Skill, find_dialect
from uni_train.models.identity import ModelIdentity
from uni_train.models.pictures import decode_data_url, decode_picture, encode_png

_LONGEST_MESSAGE = 500
_ABOUT = 10.0  # seconds for what a server says of itself, with retries
_TOKENS = 8192  # of a text, at most, where the server's own limit holds
_QUOTED = 120  # letters of a reply that has another form than its protocol's
_ABSENT = (404, 405, 501)  # statuses of an address that an endpoint does not have
DOCTOR = "`uni_train doctor URL#MODEL` says which dialects it takes."
_HOST = re.compile(r"https?://([^/?#]+)")


class WrongReply(UserError):
    """A reply of another form than its protocol's; the message quotes both."""


class UnreadableImage(WrongReply):
    """A reply that has an image in its place, which cannot be read or fetched."""


class RemoteModel:
    """A respondent (`uni_train.eval.benchmark.Respondent`): a request that fails alone is an exception in its place.

    Every method raises ModelDown if no request can be answered: the endpoint is away, refuses the key, has no such
    model, or is out of quota; or it keeps images at a host that needs permission. It raises SkillMissing if the
    endpoint says so, or has no such address (404, 405).

    Attributes:
        quoted: letters of a wrong reply in an error.
    """

    def __init__(self, base_url: str, model: str, settings: RemoteConfig, listed: Mapping[str, Any] | None) -> None:
        """listed: what /v1/models says of the model; None where it is not there."""
        self.name, self.base_url, self.settings, self.listed = model, base_url, settings, listed is not None
        self.on_fingerprint: Callable[[str], None] = lambda fingerprint: None  # of each reply that has one
        self.quoted = _QUOTED
        self._answered = False
        self._lacking: dict[str, SkillMissing] = {}  # by address
        self._refusals: dict[str, list[str]] = {}  # address -> why parameters were refused that it does without
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
            UsageError: no such address or dialect, or several models there. ModelDown: nobody answers, or the key is
                refused.
        """
        find_dialect("text", settings.text)
        find_dialect("drawing", settings.drawing)
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
        return self._all("think", requests, on_step)

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        """A text reply to the images and the prompt."""
        return self._all("answer", requests, on_step)

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray | Exception]:
        """Images uint8 [H, W, 3], by `request.thought` where it has one."""
        return self._all("draw", requests, on_step)

    def compose(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> list[list[str | np.ndarray] | Exception]:
        """Texts and images of one reply, in their order; images that come beside the text follow it."""
        return self._all("compose", requests, on_step)

    # --- one request -------------------------------------------------------------------------------------------------

    def _dialect(self, skill: Skill) -> Dialect:
        """Texts and images of one reply come by the dialect of images if it writes or films, too."""
        drawing = find_dialect("drawing", self.settings.drawing)
        if skill == "draw" or (skill == "compose" and (drawing.writes or drawing.films)):
            return drawing
        return find_dialect("text", self.settings.text)

    async def _reply(self, client: Client, skill: Skill, request: Request) -> Any:
        dialect = self._dialect(skill)
        call = dialect.call(skill, request, Endpoint(self.name, self.settings, self.ours))
        if missing := self._lacking.get(call.path):
            raise missing
        reply = await self._post(client, dialect, call)
        if dialect.films:
            frames = await dialect.film(
                request, reply, partial(self._polled, client),
                lambda at: self._fetched(client, urljoin(f"{self.base_url}/", at), hops=2), self.settings.patience,
            )  # fmt: skip
            return frames[-1] if skill == "draw" else frames
        completion = completions.read(reply) or Completion(())
        if skill == "think" and self.settings.thoughts == "reasoning":
            self._expect_whole(skill, completion)
            if not completion.reasoning:
                raise UserError("the reply has no reasoning: ask for it by remote.extra_body, or remote.thoughts=reply")
            return "\n\n".join(completion.reasoning)[: self._longest]
        parts = [part for part in completion.parts if part.strip()]
        if skill != "compose":
            parts = [part for part in parts if isinstance(part, Address) == (skill == "draw")]
        if skill != "draw" or not parts:
            self._expect_whole(skill, completion)
        if not parts:
            raise self._wrong_reply(reply, call.expected)
        if skill == "draw":
            return await self._image(client, parts[0])
        if skill == "compose":
            return [await self._image(client, x) if isinstance(x, Address) else x[: self._longest] for x in parts]
        return "\n".join(parts)[: self._longest]

    async def _post(self, client: Client, dialect: Dialect, call: Call) -> Any:
        """The reply; what the endpoint refuses by name is left out, from then on at once."""
        parameters = call.body if call.parameters is None else call.parameters
        refusals = list(self._refusals.get(call.path, ()))
        for reason in refusals:
            without_refused(parameters, reason, dialect.optional)
        url = f"{self.base_url}/{call.path}"
        while True:
            body = _merged(call.body, self.settings.extra_body)
            try:
                form = partial(_form, body, call) if call.files or call.field else None
                reply = await client.ask(url, body, form, once=dialect.films)
            except Refused as error:
                if error.status not in (400, 422) or not without_refused(parameters, error.reason, dialect.optional):
                    raise
                refusals.append(error.reason)
            except BadReply as error:
                raise BadReply(f"{error}; expected {call.expected}") from None
            else:
                self._refusals[call.path], self._answered = refusals, True
                if isinstance(reply, Mapping) and isinstance(reply.get("system_fingerprint"), str):
                    self.on_fingerprint(reply["system_fingerprint"])
                return reply

    def _expect_whole(self, skill: Skill, completion: Completion) -> None:
        """Raises UserError for a refusal and an answer that was cut off; an unfinished thought is one to draw by."""
        ends = {"refusal": "refused", "content_filter": "its server's filter ended the reply"}
        if completion.stop in ends:
            raise UserError(f"{ends[completion.stop]}: {_short(completion.text)}")
        if completion.stop == "max_tokens" and skill in ("answer", "compose"):
            tokens = f"after {completion.output_tokens:,} tokens" if completion.output_tokens else "by its limit"
            raise UserError(f"the answer was cut off {tokens}, which is none: raise max_tokens (remote.max_tokens)")

    def _wrong_reply(self, reply: Any, expected: str) -> WrongReply:
        """The error of every protocol; of an envelope the part that tells is quoted."""
        telling = completions.first(reply, "choices").get("message")
        if isinstance(reply, Mapping):
            telling = telling or reply.get("error") or reply.get("output")
        quoted = json.dumps(telling or reply, ensure_ascii=False)[: self.quoted]
        return WrongReply(f"{self.name} answered {quoted}; expected {expected}", DOCTOR)

    async def _image(self, client: Client, address: str) -> np.ndarray:
        """Raises ModelDown: it is at a host that needs permission. UnreadableImage: nothing there is one."""
        try:
            if address.startswith("data:"):
                return decode_picture(decode_data_url(address, "the image"), "the image")
            return decode_picture(await self._fetched(client, address), "the image")
        except ModelDown:
            raise
        except (UserError, BadReply) as error:
            raise UnreadableImage(f"{self.name} answered with an unreadable image: {first_line(error)}") from None

    async def _polled(self, client: Client, path: str) -> Any:
        try:
            return await client.ask(f"{self.base_url}/{path}")
        except Refused as error:
            if _refuses_key(error):  # of all requests, and no job of theirs need be started
                raise _refused(self.base_url, self.settings) from None
            raise

    async def _fetched(self, client: Client, address: str, hops: int = 0) -> bytes:
        """hops: redirects that are followed, each by the same rules."""
        home, there = _HOST.match(self.base_url), _HOST.match(address)
        if there is None:
            raise UserError(f"{address[:_QUOTED]!r} is no http(s) address")
        same, host = home is not None and home[0] == there[0], there[1]
        below = tuple(name for name in self.settings.image_hosts if name.startswith("."))
        if not same and host not in self.settings.image_hosts and not host.endswith(below):
            hint = f"To fetch them from there, without the key: remote.image_hosts=[{host}]."
            raise ModelDown(f"{self.name} answers with images at another host, {host}", hint)
        try:
            return await client.read(address, with_key=same)
        except Refused as error:
            if same and _refuses_key(error):
                raise _refused(self.base_url, self.settings) from None
            if not (hops and error.to):
                raise
            return await self._fetched(client, urljoin(address, error.to), hops - 1)

    # --- many requests -----------------------------------------------------------------------------------------------

    def _all(self, skill: Skill, requests: Sequence[Request], on_step: OnStep | None) -> list[Any]:
        """As many at once as there are connections; the first error that concerns all of them stops the rest.

        on_step is called once a second too.
        """
        answers: list[Any] = [None] * len(requests)
        passing = done = 0

        def report() -> None:
            if on_step is not None:
                on_step(done, len(requests))

        async def answer(client: Client, place: int) -> None:
            nonlocal passing, done
            may_pass = False  # whether a failure may pass by itself
            try:
                answers[place] = await self._reply(client, skill, requests[place])
            except (ModelDown, SkillMissing):
                raise
            except UserError as error:
                answers[place] = error
            except Refused as error:
                answers[place], may_pass = self._failure(error)
            except (NoReply, BadReply) as error:
                answers[place], may_pass = UserError(str(error)), True
            passing, done = passing + may_pass, done + 1
            report()

        ask_all(range(len(requests)), answer, self._key, self.settings, beat=report)
        if requests and passing == len(requests):
            raise ModelDown(
                f"{self.base_url} answers none of {len(requests)} requests: {answers[0]}",
                "See whether it is up; finished calls are kept, so run the same command again.",
            )
        return answers

    def _failure(self, error: Refused) -> tuple[UserError, bool]:
        """A request's failure, and whether it may pass by itself. Raises what concerns all requests."""
        words = _short(error.reason)
        if _refuses_key(error):
            raise _refused(self.base_url, self.settings)
        if error.status in _ABSENT:
            raise self._absent(error)
        if error.code == "insufficient_quota":
            hint = "Finished calls are kept; continue when there is more."
            raise ModelDown(f"{self.base_url}: the quota is used up", hint)
        if error.code == "skill_missing":
            raise SkillMissing(self.name, words.partition(" cannot ")[2] or words)
        return UserError(words), error.passes or error.status in REDIRECTS

    def _absent(self, error: Refused) -> UserError:
        """The address is missing, or the model: an endpoint that lists none says which by naming it."""
        path, words = error.url.removeprefix(self.base_url + "/"), _short(error.reason)
        if not self.listed and (error.code == "model_not_found" or self.name in error.reason):
            return ModelDown(f"{self.base_url} has no model {self.name}, or cannot do this: {words}", "Check both.")
        self._lacking[path] = SkillMissing(self.name, f"be asked by {path}: {words}")
        self._lacking[path].hint = DOCTOR
        if not (self.listed or self._answered) and len({path.startswith("images/") for path in self._lacking}) > 1:
            tried = " nor ".join(self._lacking)
            return ModelDown(f"{self.base_url} has neither {tried}: {words}", f"Check the address. {DOCTOR}")
        return self._lacking[path]

    @property
    def _longest(self) -> int:
        """Letters of a text."""
        return (self.settings.max_tokens or _TOKENS) * LETTERS_A_TOKEN

    def _asked(self, about: Mapping[str, Any] | None) -> dict[str, Any]:
        """What decides an answer besides the request; not how many at once, nor how patiently."""
        own = self.settings
        settings: dict[str, Any] = {name: getattr(own, name) for name in ("temperature", "max_tokens", "drawing")}
        if own.text != "chat":
            settings["text"] = own.text
        if own.extra_body:
            settings["extra_body"] = own.extra_body
        if own.thoughts != "reply":
            settings["thoughts"] = own.thoughts
        if about is None:
            return {**settings, "think_system": own.think_system or THINK_THEN_DRAW}
        return {**settings, "server": dict(about["settings"])}


def _offered(base_url: str, settings: RemoteConfig) -> dict[str, Mapping[str, Any]] | None:
    """The endpoint's models, each with what it says about them; None where it lists none."""
    key = key_for(base_url, settings.key_env)
    try:
        listed = get_json(f"{base_url}/models", key, replace(settings, timeout=_ABOUT, patience=_ABOUT))
    except Refused as error:
        if error.status in _ABSENT:
            return None
        if _refuses_key(error):
            raise _refused(base_url, settings) from None
        raise ModelDown(f"{base_url} does not list its models: {error}", "Check the address.") from None
    except (NoReply, BadReply) as error:
        raise ModelDown(f"{base_url} does not answer: {error}", "Check the address, and whether it is up.") from None
    models = (listed.get("data") or listed.get("models")) if isinstance(listed, Mapping) else None
    rows = [row for row in (models if isinstance(models, list) else []) if isinstance(row, Mapping)]
    named = [(row.get("id") or row.get("name"), row) for row in rows]
    return {name.removeprefix("models/"): row for name, row in named if isinstance(name, str)}


def _refuses_key(error: Refused) -> bool:
    """Google says so by status 400."""
    return error.status in (401, 403) or (error.status == 400 and "API key not valid" in error.reason)


def _refused(base_url: str, settings: RemoteConfig) -> ModelDown:
    variable = key_variable(base_url, settings.key_env)
    if variable is None:
        return ModelDown(f"{base_url} wants a key", "Put it into an environment variable and name that: key_env.")
    return ModelDown(f"{base_url} refuses the key in {variable}", "Check the key; it is shown nowhere.")


def _merged(body: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with the keys of `more`, those of sections one by one."""
    both = {**body, **more}
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(body.get(name), Mapping):
            both[name] = _merged(body[name], value)
    return both


def _form(fields: Mapping[str, Any], call: Call) -> Any:
    """A form of texts and PNG files."""
    import aiohttp

    form = aiohttp.FormData()
    for name, value in fields.items():
        form.add_field(name, str(value))
    for number, image in enumerate(call.files):
        form.add_field(call.field or "image[]", encode_png(image), filename=f"{number}.png", content_type="image/png")
    return form


def _short(text: str) -> str:
    line = " ".join(clean(text).split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}..."
