"""A model that is a Python object or a function, as one that can be asked and stored."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.core.errors import SkillMissing
from uni_train.core.reading_limits import rgb
from uni_train.eval.calls import StoredModel
from uni_train.eval.store import Store
from uni_train.models.identity import ModelIdentity

if TYPE_CHECKING:
    from uni_train.eval.sample import Respondent
    from uni_train.models.base import OnStep, Request

Function = Callable[..., Any]
"""(prompt, images: list of uint8 [H, W, 3], seed) -> an image (uint8 [H, W, 3] or PIL) or a text."""


def python_model(model: Respondent | Function, store: Store, *, revision: str | None, batch: int | None) -> StoredModel:
    """The object or function behind the store.

    Args:
        revision: which weights answer: calls are kept under it and asked once. None: kept for this process alone.
    """
    asked: Any = model if hasattr(model, "draw") else FunctionModel(model)  # type: ignore[arg-type]
    name = str(asked.name)
    content = f"python {name} {revision or uuid.uuid4().hex}"
    identity = ModelIdentity(name, "Python", content, {"revision": revision})
    size = batch or 16
    return StoredModel(identity, store, lambda: asked, think_batch=size, draw_batch=size)


class FunctionModel:
    """A function that draws or answers; a request is a call. What it does not return is a skill that it lacks."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._lacking: dict[type, SkillMissing] = {}
        self.name = getattr(function, "__name__", type(function).__name__).strip("<>")

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return self._all(requests, str, on_step)

    answer = think

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray | Exception]:
        return self._all(requests, np.ndarray, on_step)

    def compose(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[Any]:
        raise SkillMissing(self.name, "answer with text and images in one pass")

    def _all(self, requests: Sequence[Request], kind: type, on_step: OnStep | None) -> list[Any]:
        if kind in self._lacking:
            raise self._lacking[kind]
        outcomes: list[Any] = []
        for number, request in enumerate(requests):
            prompt = request.prompt if request.thought is None else f"{request.prompt}\n\n{request.thought}"
            try:
                reply = self.function(prompt, list(request.images), request.seed)
            except Exception as error:  # one call that failed: the others are answered
                outcomes.append(error)
            else:
                outcomes.append(self._as(kind, reply))
            if on_step is not None:
                on_step(number + 1, len(requests))
        return outcomes

    def _as(self, kind: type, reply: Any) -> Any:
        if kind is str and isinstance(reply, str):
            return reply
        if kind is str or isinstance(reply, str):
            skill = "write text" if kind is str else "draw"
            self._lacking[kind] = SkillMissing(self.name, f"{skill}: it returned {type(reply).__name__}")
            raise self._lacking[kind]
        try:
            image = rgb(reply) if hasattr(reply, "convert") else np.asarray(reply)
        except ValueError as error:
            return error
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            return ValueError(f"{self.name} returned {image.dtype} {image.shape}, not uint8 [H, W, 3]")
        return image
