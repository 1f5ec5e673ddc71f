"""What an endpoint can do, found by ten small requests; a parameter that is refused costs one more.

Each protocol is tried that a text or an image may come by. A reply of another form is quoted beside the expected one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from uni_train.config.schema import RemoteConfig
from uni_train.core.errors import UserError
from uni_train.models.base import Request
from uni_train.models.batches import ModelDown
from uni_train.models.doctor import Examination, Finding, image_finding
from uni_train.models.endpoint_parity import ROUNDING, apart, compare
from uni_train.models.family import FAMILIES, family_of
from uni_train.models.remote import RemoteModel, UnreadableImage, WrongReply

WRITE, READ_IMAGES, DRAW, EDIT = "write texts", "read images", "draw from words", "edit images"
"""Skills of an endpoint."""
_QUOTED = 200  # letters of a wrong reply
_SHOWN = 60  # letters of a text
_RED = np.full((64, 64, 3), (255, 0, 0), np.uint8)
# In words that the shipped nano knows too.
_QUESTION = Request("question", "How many is 2 + 1 ?", seed=1)
_DRAWING = Request("drawing", "Draw 3 apples .", seed=1)
_OTHER = Request("other drawing", "Draw 5 trees .", seed=1)
_LOOKING = Request("looking", "Which colour does this picture have? Answer in one word.", (_RED,), seed=1)
_EDITING = Request("editing", "Draw 3 apples .", (_RED,), seed=1)


@dataclass(slots=True)
class EndpointExamination(Examination):
    """Further the skills that the endpoint has, and the keys of `eval` that suit it."""

    skills: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)


def examine_endpoint(address: str, settings: RemoteConfig, against: str | None = None) -> EndpointExamination:
    """Every check, each asked once; with a checkpoint in `against` also whether the endpoint draws and writes as that.

    Raises:
        UsageError: no such address, or several models there. ModelDown: nobody answers, or the key is refused.
        UserError: `against` cannot be loaded.
    """
    model = RemoteModel.open(address, replace(settings, retries=0))
    model.quoted = _QUOTED
    listed = "lists the model" if model.listed else "does not list the model"
    seen = EndpointExamination([Finding("models", "ok" if model.listed else "note", f"{model.base_url} {listed}")])
    texts, images = ("chat", "responses"), ("images", "chat", "responses")
    written = {by: _ask(model, seen, WRITE, f"text: {by}", _QUESTION, text=by) for by in texts}
    text = next((by for by in texts if written[by] is not None), None)
    if text is not None:
        _look(model, seen, text)
    drawn = {by: _ask(model, seen, DRAW, f"drawing: {by}", _DRAWING, drawing=by) for by in images}
    drawing = next((by for by in images if drawn[by] is not None), None)
    _ask(model, seen, EDIT, "editing", _EDITING, drawing=drawing or "images")
    if drawing is not None:
        seen.image = drawn[drawing]
        again = _ask(model, seen, DRAW, "seeds", _DRAWING, drawing=drawing)
        if again is not None:
            same = np.array_equal(again, seen.image)
            said = f"the same seed draws {'the same' if same else 'another'} image"
            seen.findings[-1] = Finding("seeds", "ok" if same else "note", said)
        _compare_prompts(model, seen, drawing)
    if not seen.skills:
        seen.findings.append(Finding("skills", "wrong", "it neither writes nor draws: check address, name and key"))
    if against is not None:
        by: dict[str, Any] = {"text": text or "chat", "drawing": drawing or "images"}
        model.settings = replace(model.settings, **by)
        shown = () if drawing is not None else (_RED,)  # an editor
        seen.findings += compare(model, against, [replace(one, images=shown) for one in (_DRAWING, _OTHER)], _QUESTION)
    family = model.identity.settings.get("server", {}).get("family")
    world = family_of(family).world if family in FAMILIES.names() else "everyday"
    seen.keys = [f"world={world}"] if world != "everyday" else []
    seen.keys += [f"remote.text={text}"] if text == "responses" else []
    seen.keys += [f"remote.drawing={drawing}"] if drawing in ("chat", "responses") else []
    return seen


def _compare_prompts(model: RemoteModel, seen: EndpointExamination, drawing: Any) -> None:
    """Whether another prompt with the seed of `seen.image` draws another image."""
    other = _ask(model, seen, DRAW, "prompts", _OTHER, drawing=drawing)
    if other is None or seen.image is None:
        return
    blind = apart(other, seen.image) <= ROUNDING
    said = "two prompts draw the same image: none is read" if blind else "another prompt draws another image"
    seen.findings[-1] = Finding("prompts", "wrong" if blind else "ok", said)


def _look(model: RemoteModel, seen: EndpointExamination, text: str) -> None:
    """Whether it sees a red picture."""
    colour = _ask(model, seen, READ_IMAGES, "images", _LOOKING, text=text)
    if colour is not None and "red" not in colour.lower():
        seen.skills.remove(READ_IMAGES)
        seen.findings[-1] = Finding("images", "note", f"it calls a red picture {colour[:_SHOWN]!r}")


def _ask(model: RemoteModel, seen: EndpointExamination, skill: str, check: str, request: Request, **by: Any) -> Any:
    """The reply, None for none; what came of it is a finding.

    by: the protocol. A text in the place of an image is no fault: many a model writes and does not draw.
    """
    model.settings = replace(model.settings, **by)
    began = time.monotonic()
    try:
        (reply,) = (model.draw if skill in (DRAW, EDIT) else model.answer)([request])
    except UserError as error:  # which concerns all requests
        reply = error
    took = f"; {time.monotonic() - began:.1f} s"
    if isinstance(reply, Exception):
        hint = f". {reply.hint}" if isinstance(reply, ModelDown) and reply.hint else ""
        writes = by.get("drawing") in ("chat", "responses")
        wrong = isinstance(reply, ModelDown | UnreadableImage) or (isinstance(reply, WrongReply) and not writes)
        message = " ".join((reply.message if isinstance(reply, UserError) else str(reply)).split())
        seen.findings.append(Finding(check, "wrong" if wrong else "note", f"{message}{hint}{took}"))
        return None
    one = Finding(check, "ok", repr(reply[:_SHOWN])) if isinstance(reply, str) else image_finding(check, reply)
    seen.findings.append(replace(one, said=one.said + took))
    seen.skills.add(skill)
    return reply
