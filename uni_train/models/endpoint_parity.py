"""Whether an endpoint draws and writes what a checkpoint on this machine does: the same prompts, sizes and seeds.

Rollouts from an engine need this first. One has served BAGEL whose images had nothing to do with their prompts
(vllm-project/vllm-omni issue 1791), without an error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from uni_train.core.errors import SkillMissing, first_line
from uni_train.models.base import ImageGenerator, Request, TextGenerator, UnifiedModel, expect_skill
from uni_train.models.doctor import Finding
from uni_train.models.identity import ModelIdentity, identify
from uni_train.models.load import build_model, model_config
from uni_train.models.remote import RemoteModel

ROUNDING = 1.0
"""Mean difference of pixels, in levels of 0 to 255, up to which two images are one up to rounding."""


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Mean absolute difference of two images uint8 [H, W, 3], in levels; 255 for those of different sizes."""
    return float(np.abs(one.astype(int) - other.astype(int)).mean()) if one.shape == other.shape else 255.0


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
    found = _identities(remote, identify(config)) if remote.ours else []
    for check, findings in (("parity: images", _images), ("parity: text", _text)):
        try:
            found.append(findings(check, remote, model, drawings if findings is _images else [question]))
        except SkillMissing as error:
            found.append(Finding(check, "note", first_line(error)))
    return found


def _identities(remote: RemoteModel, own: ModelIdentity) -> list[Finding]:
    """Of a server that says which weights it has, and how it draws."""
    same = remote.identity.content == own.content
    found = [Finding("parity: weights", "ok" if same else "wrong", f"{'the same' if same else 'others'} as {own.name}")]
    served: dict[str, Any] = dict(remote.identity.settings["server"])
    differ = [name for name in {**served, **own.settings} if served.get(name) != own.settings.get(name)]
    if differ:
        found.append(Finding("parity: settings", "note", f"the server has another {', '.join(differ)}"))
    return found


def _images(check: str, remote: RemoteModel, model: UnifiedModel, requests: list[Request]) -> Finding:
    own, served = expect_skill(model, ImageGenerator).draw(requests), remote.draw(requests)
    for reply in served:
        if isinstance(reply, Exception):
            return Finding(check, "wrong", first_line(reply))
    pairs = [(one, other) for one, other in zip(served, own, strict=True) if isinstance(one, np.ndarray)]
    same, crossed = max(apart(*pair) for pair in pairs), apart(*own)
    said = f"{same:.1f} levels from the checkpoint's; its two prompts are {crossed:.1f} apart"
    if same <= ROUNDING:
        return Finding(check, "ok", said)
    if remote.ours:
        return Finding(check, "wrong", said)
    return Finding(check, "note", f"{said}: other noise for a seed, other settings or other weights")


def _text(check: str, remote: RemoteModel, model: UnifiedModel, requests: list[Request]) -> Finding:
    model.sampling = replace(model.sampling, temperature=0.0)
    (own,) = expect_skill(model, TextGenerator).answer(requests)
    remote.settings = replace(remote.settings, temperature=0.0)
    (served,) = remote.answer(requests)
    if isinstance(served, Exception):
        return Finding(check, "wrong", first_line(served))
    same = own.strip() == served.strip()
    said = "the same" if same else f"{served[:60]!r}, the checkpoint {own[:60]!r}"
    return Finding(check, "ok" if same else "wrong" if remote.ours else "note", said)
