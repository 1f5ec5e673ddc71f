"""Two models as one: `text_model` thinks and answers, the checkpoint draws. Each call is stored under its own model.

So a language model of a server thinks for any image model, and its thoughts are read from the store beside the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from uni_train.core.errors import SkillMissing
from uni_train.models.identity import ModelIdentity, digest

if TYPE_CHECKING:
    from uni_train.eval.calls import Counts, StoredModel
    from uni_train.eval.images import StoredImage
    from uni_train.eval.store import Skill
    from uni_train.models.base import OnStep, Request


class Pair:
    """A respondent of two. It does not answer with texts and images in one pass, whatever its parts can."""

    partial = False

    def __init__(self, text: StoredModel, image: StoredModel) -> None:
        self.text, self.image = text, image
        self.name = f"{text.name}+{image.name}"
        self.think_batch, self.draw_batch = text.think_batch, image.draw_batch
        parts = {"text": text.identity, "image": image.identity}
        settings = {part: {"content": one.content, "settings": dict(one.settings)} for part, one in parts.items()}
        sources = f"{text.identity.source} + {image.identity.source}"
        self.identity = ModelIdentity(self.name, sources, digest([one.key for one in parts.values()]), settings)

    @property
    def counts(self) -> dict[Skill, Counts]:
        """Calls of each skill, by the model that makes them."""
        return {skill: (self.image if skill == "draw" else self.text).counts[skill] for skill in self.text.counts}

    @property
    def finished(self) -> int:
        """Calls in the store, of both models."""
        return self.text.finished + self.image.finished

    @property
    def damaged(self) -> list[str]:
        """As of `StoredModel`."""
        return self.text.damaged + self.image.damaged

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return self.text.think(requests, on_step=on_step)

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return self.text.answer(requests, on_step=on_step)

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[StoredImage | Exception]:
        return self.image.draw(requests, on_step=on_step)

    def compose(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> NoReturn:
        raise SkillMissing(self.name, "answer with text and images in one pass")

    def reread(self) -> None:
        """As of `StoredModel`."""
        self.text.reread()
        self.image.reread()

    def release(self) -> None:
        """Let go of both models and their memory."""
        self.text.release()
        self.image.release()
