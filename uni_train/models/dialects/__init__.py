"""Dialects: what is sent to an endpoint. A module holds one, which `remote.text` and `remote.drawing` name.

    @dialect("gemini")                  # in uni_train/models/dialects/gemini.py, or in a plug-in
    class Gemini(Dialect): ...

Replies of all dialects are read alike (uni_train.models.completions).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from uni_train.config.schema import RemoteConfig
from uni_train.core.errors import UsageError, did_you_mean
from uni_train.core.registry import Registry
from uni_train.models.bagel.prompts import THINK_THEN_DRAW
from uni_train.models.base import Request

Skill = Literal["think", "answer", "draw", "compose"]
Ask = Callable[[str], Awaitable[Any]]
Fetch = Callable[[str], Awaitable[bytes]]
SEED_BITS = 0x7FFFFFFF
"""Of seeds that must be signed integers of 32 bits and not negative."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who is asked. `ours`: `uni_train serve`, which takes thoughts beside prompts."""

    model: str
    settings: RemoteConfig
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A request of HTTP.

    Attributes:
        path: below the endpoint's address. body: of JSON; beside `files`, images of a form, its fields.
        expected: the form of a reply, for errors. parameters: the part of `body` that has what an endpoint may refuse
            by name; None: all of it. field: the name of a file; with one, `body` is a form even without `files`.
    """

    path: str
    body: dict[str, Any]
    expected: str
    files: tuple[np.ndarray, ...] = ()
    parameters: dict[str, Any] | None = None
    field: str | None = None


class Dialect(ABC):
    """How one kind of endpoint is asked.

    Attributes:
        writes, draws: whether texts or images come by it.
        films: whether a reply starts a job, whose clip `film` waits for; its frames are the images.
        optional: parameters that are left out where an endpoint refuses them by name.
    """

    writes = draws = True
    films = False
    optional: tuple[str, ...] = ("seed", "response_format", "modalities", "tool_choice")

    @abstractmethod
    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        """What is sent for one request."""

    async def film(self, request: Request, reply: Any, ask: Ask, fetch: Fetch, patience: float) -> list[np.ndarray]:
        """Frames of the clip of a started job, uint8 [H, W, 3]. Raises UserError: the job or its clip fails.

        reply: to `call`. ask, fetch: the JSON at a path below the endpoint's address, the bytes at an address.
        patience: seconds until the job must be done.
        """
        raise NotImplementedError


DIALECTS: Registry[type[Dialect]] = Registry("dialect", "uni_train.models.dialects.*", required=("call",))
dialect = DIALECTS.register


def find_dialect(key: Literal["text", "drawing"], name: str) -> Dialect:
    """The dialect of `remote.text` or `remote.drawing`. Raises UsageError: unknown, or of the other kind."""
    known = DIALECTS.names()
    if name not in known:
        raise UsageError(f"remote.{key}={name}: no such dialect", did_you_mean(name, known, "dialects"))
    chosen = DIALECTS.get(name)()
    if not (chosen.writes if key == "text" else chosen.draws):
        raise UsageError(f"remote.{key}={name}: this dialect has no {'texts' if key == 'text' else 'images'}")
    return chosen


class Message(NamedTuple):
    """A turn of "system", "user" or "assistant"; images stand before the text."""

    role: str
    text: str
    images: tuple[np.ndarray, ...] = ()


def messages(skill: Skill, request: Request, endpoint: Endpoint) -> list[Message]:
    """One turn of the user; a system prompt that asks for a thought, or a thought to draw by as the model's turn."""
    turns = [Message("user", request.prompt, request.images)]
    if skill == "think" and not endpoint.ours and endpoint.settings.thoughts == "reply":
        turns.insert(0, Message("system", endpoint.settings.think_system or THINK_THEN_DRAW))
    if request.thought is not None:
        turns += [Message("assistant", request.thought), Message("user", "Now draw the picture.")]
    return turns


def whole_prompt(request: Request) -> str:
    """The prompt and the thought to draw by, where both are one text."""
    return request.prompt if request.thought is None else f"{request.prompt}\n\n{request.thought}"


def size(request: Request) -> dict[str, str]:
    """ "size" as WIDTHxHEIGHT, where the request has one."""
    return {} if request.size is None else {"size": f"{request.size[1]}x{request.size[0]}"}


def given(parameters: dict[str, Any]) -> dict[str, Any]:
    """Those that are not None: an endpoint has its own."""
    return {name: value for name, value in parameters.items() if value is not None}
