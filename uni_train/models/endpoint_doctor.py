"""What an endpoint can do, found by about a dozen small requests; a parameter that is refused costs one more.

Each dialect is tried that a text or an image may come by. A reply of another form is quoted beside the expected one.

With a checkpoint beside it, also whether the endpoint draws and writes the same: the same prompts, sizes and seeds.
Rollouts from an engine need this first. One has served BAGEL whose images had nothing to do with their prompts
(vllm-project/vllm-omni issue 1791), without an error.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from uni_train.config.schema import RemoteConfig
from uni_train.core.errors import SkillMissing, UsageError, UserError, first_line
from uni_train.models.base import ImageGenerator, Request, TextGenerator, UnifiedModel, expect_skill
from uni_train.models.batches import ModelDown
from uni_train.models.dialects import DIALECTS, find_dialect
from uni_train.models.doctor import Examination, Finding, image_finding
from uni_train.models.family import FAMILIES, family_of
from uni_train.models.identity import ModelIdentity, identify
from uni_train.models.load import build_model, model_config
from uni_train.models.remote import RemoteModel, UnreadableImage, WrongReply

WRITE, READ_IMAGES, DRAW, EDIT = "write texts", "read images", "draw from words", "edit images"
"""Skills of an endpoint."""
ROUNDING = 1.0
"""Mean difference of pixels, in levels of 0 to 255, up to which two images are one up to rounding."""

_QUOTED = 200  # letters of a wrong reply
_SHOWN = 60  # letters of a text
_RED = np.full((64, 64, 3), (255, 0, 0), np.uint8)
# In words that the shipped nano knows too.
_QUESTION = Request("question", "How many is 2 + 1 ?", seed=1)
_DRAWING = Request("drawing", "Draw 3 apples .", seed=1)
_OTHER = Request("other drawing", "Draw 5 trees .", seed=1)
_LOOKING = Request("looking", "Which colour does this picture have? Answer in one word.", (_RED,), seed=1)
_EDITING = Request("editing", "Draw 3 apples .", (_RED,), seed=1)
_KEEPING = Request("editing", "Return this picture as it is, without any change.", (_RED,), seed=1)


@dataclass(slots=True)
class EndpointExamination(Examination):
    """Further the skills that the endpoint has, and the keys of `eval` that suit it."""

    skills: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)


def examine_endpoint(address: str, settings: RemoteConfig, against: str | None = None) -> EndpointExamination:
    """Every check, each asked once; with a checkpoint in `against` also whether the endpoint draws and writes as that.

    Raises:
        UsageError: no such address, or several models there, or `settings` names a dialect of videos. ModelDown: nobody
            answers, or the key is refused. UserError: `against` cannot be loaded.
    """
    if find_dialect("drawing", settings.drawing).films:
        hint = "Try one: eval URL#MODEL -b vigor --n 1 options.vigor.video=yes"
        raise UsageError("doctor makes no videos, each of which takes minutes and is paid", hint)
    model = RemoteModel.open(address, replace(settings, retries=0))
    model.quoted = _QUOTED
    listed = "lists the model" if model.listed else "does not list the model"
    seen = EndpointExamination([Finding("models", "ok" if model.listed else "note", f"{model.base_url} {listed}")])
    names = DIALECTS.names()
    texts = sorted((by for by in names if DIALECTS.get(by).writes), key="chat".__ne__)  # the defaults come first
    stills = (by for by in names if DIALECTS.get(by).draws and not DIALECTS.get(by).films)
    images = sorted(stills, key="images".__ne__)
    written = {by: _ask(model, seen, WRITE, f"text: {by}", _QUESTION, text=by) for by in texts}
    text = next((by for by in texts if written[by] is not None), None)
    if text is not None:
        _look(model, seen, text)
    drawn = {by: _ask(model, seen, DRAW, f"drawing: {by}", _DRAWING, drawing=by) for by in images}
    drawers = [by for by in images if drawn[by] is not None]
    editor = next((by for by in drawers or ["images"] if _edits(model, seen, by)), None)
    drawing = editor if editor in drawers else next(iter(drawers), None)
    if drawing is not None:
        seen.image = drawn[drawing]
        again = _ask(model, seen, DRAW, "seeds", _DRAWING, drawing=drawing)
        if again is not None:
            same = np.array_equal(again, seen.image)
            detail = f"the same seed draws {'the same' if same else 'another'} image"
            seen.findings[-1] = Finding("seeds", "ok" if same else "note", detail)
        _compare_prompts(model, seen, drawing)
    if not seen.skills:
        seen.findings.append(Finding("skills", "wrong", "it neither writes nor draws: check address, name and key"))
    if against is not None:
        by: dict[str, Any] = {"text": text or "chat", "drawing": drawing or "images"}
        model.settings = replace(model.settings, **by)
        shown = () if drawing is not None else (_RED,)  # an editor
        seen.findings += compare(
            model, against, [replace(question, images=shown) for question in (_DRAWING, _OTHER)], _QUESTION
        )
    family = model.identity.settings.get("server", {}).get("family")
    world = family_of(family).world if family in FAMILIES.names() else "everyday"
    seen.keys = [f"world={world}"] if world != "everyday" else []
    seen.keys += [f"remote.text={text}"] if text not in (None, "chat") else []
    seen.keys += [f"remote.drawing={drawing}"] if drawing not in (None, "images") else []
    return seen


def _compare_prompts(model: RemoteModel, seen: EndpointExamination, drawing: Any) -> None:
    """Whether another prompt with the seed of `seen.image` draws another image."""
    other = _ask(model, seen, DRAW, "prompts", _OTHER, drawing=drawing)
    if other is None or seen.image is None:
        return
    blind = pixel_difference(other, seen.image) <= ROUNDING
    detail = "two prompts draw the same image: none is read" if blind else "another prompt draws another image"
    seen.findings[-1] = Finding("prompts", "wrong" if blind else "ok", detail)


def _look(model: RemoteModel, seen: EndpointExamination, text: str) -> None:
    """Whether it sees a red picture."""
    colour = _ask(model, seen, READ_IMAGES, "images", _LOOKING, text=text)
    if colour is not None and "red" not in colour.lower():
        seen.skills.remove(READ_IMAGES)
        seen.findings[-1] = Finding("images", "note", f"it calls a red picture {colour[:_SHOWN]!r}")


def _edits(model: RemoteModel, seen: EndpointExamination, drawing: str) -> bool:
    """Whether it reads the image, where edits have the address of drawings: it may answer them and ignore the image."""
    check, shared = f"editing: {drawing}", drawing != "images" and not model.ours
    edited = _ask(model, seen, EDIT, check, _KEEPING if shared else _EDITING, drawing=drawing)
    if edited is None:
        return False
    red, green, blue = edited.mean((0, 1))
    if shared and red < 2 * max(green, blue):
        seen.skills.remove(EDIT)
        seen.findings[-1] = Finding(
            check, "note", "a red picture that it was to keep is not red: its image is not read"
        )
        return False
    return True


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
        writes = "drawing" in by and DIALECTS.get(by["drawing"]).writes
        wrong = isinstance(reply, ModelDown | UnreadableImage) or (isinstance(reply, WrongReply) and not writes)
        message = " ".join((reply.message if isinstance(reply, UserError) else str(reply)).split())
        seen.findings.append(Finding(check, "wrong" if wrong else "note", f"{message}{hint}{took}"))
        return None
    finding = Finding(check, "ok", repr(reply[:_SHOWN])) if isinstance(reply, str) else image_finding(check, reply)
    seen.findings.append(replace(finding, detail=finding.detail + took))
    seen.skills.add(skill)
    return reply


# --- parity with a checkpoint ----------------------------------------------------------------------------------------


def pixel_difference(first: np.ndarray, other: np.ndarray) -> float:
    """Mean absolute difference of two images uint8 [H, W, 3], in levels; 255 for those of different sizes."""
    return float(np.abs(first.astype(int) - other.astype(int)).mean()) if first.shape == other.shape else 255.0


def compare(remote: RemoteModel, checkpoint: str, drawings: list[Request], question: Request) -> list[Finding]:
    """What differs between an endpoint and a checkpoint, each asked the same.

    Images are compared with those of the same prompt and with those of the other one. An engine may draw a seed's noise
    in its own way, which is a note. A text is compared at temperature 0.

    Args:
        checkpoint: as `uni_train.models.checkpoint.model_config` takes it.
        drawings: two requests with one seed. question: for a text.

    Raises:
        UserError: the checkpoint cannot be loaded. ModelDown: the endpoint does not answer.
    """
    config = model_config(checkpoint)
    model = build_model(config, device="cuda" if torch.cuda.is_available() else "cpu")
    compared = _identities(remote, identify(config)) if remote.ours else []
    for check, findings in (("parity: images", _images), ("parity: text", _text)):
        try:
            compared.append(findings(check, remote, model, drawings if findings is _images else [question]))
        except SkillMissing as error:
            compared.append(Finding(check, "note", first_line(error)))
    return compared


def _identities(remote: RemoteModel, own: ModelIdentity) -> list[Finding]:
    """Of a server that says which weights it has, and how it draws."""
    same = remote.identity.content == own.content
    detail = f"{'the same' if same else 'others'} as {own.name}"
    compared = [Finding("parity: weights", "ok" if same else "wrong", detail)]
    served: dict[str, Any] = dict(remote.identity.settings["server"])
    differ = [name for name in {**served, **own.settings} if served.get(name) != own.settings.get(name)]
    if differ:
        compared.append(Finding("parity: settings", "note", f"the server has another {', '.join(differ)}"))
    return compared


def _images(check: str, remote: RemoteModel, model: UnifiedModel, requests: list[Request]) -> Finding:
    own, served = expect_skill(model, ImageGenerator).draw(requests), remote.draw(requests)
    for reply in served:
        if isinstance(reply, Exception):
            return Finding(check, "wrong", first_line(reply))
    pairs = [(image, other) for image, other in zip(served, own, strict=True) if isinstance(image, np.ndarray)]
    same, crossed = max(pixel_difference(*pair) for pair in pairs), pixel_difference(*own)
    detail = f"{same:.1f} levels from the checkpoint's; its two prompts are {crossed:.1f} apart"
    if same <= ROUNDING:
        return Finding(check, "ok", detail)
    if remote.ours:
        return Finding(check, "wrong", detail)
    return Finding(check, "note", f"{detail}: other noise for a seed, other settings or other weights")


def _text(check: str, remote: RemoteModel, model: UnifiedModel, requests: list[Request]) -> Finding:
    model.sampling = replace(model.sampling, temperature=0.0)
    (own,) = expect_skill(model, TextGenerator).answer(requests)
    remote.settings = replace(remote.settings, temperature=0.0)
    (served,) = remote.answer(requests)
    if isinstance(served, Exception):
        return Finding(check, "wrong", first_line(served))
    same = own.strip() == served.strip()
    detail = "the same" if same else f"{served[:60]!r}, the checkpoint {own[:60]!r}"
    return Finding(check, "ok" if same else "wrong" if remote.ours else "note", detail)
