"""Training examples of models that learn images alone: what is shown, what is said, what it should become.

An example is `images` + `prompt` -> `target`, or a chain of turns (image, text, learned image, text, learned image). In
a chain each learned image is one edit: from the images shown last, by the words since. Without shown images an edit is
a captioned image. For guidance, words and shown images are left out at random: words become the negative prompt; of an
image, what the text encoder sees and its latents have a draw each.

Texts are not learned: what images are drawn under must stay what the transformer was pretrained on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.models.base import Example, States
from uni_train.models.diffusers.latents import Grid


@dataclass(frozen=True, slots=True)
class Edit:
    """One learned image, or given states of one, and what it is drawn from."""

    prompt: str
    images: tuple[np.ndarray, ...]
    target: np.ndarray | States


@dataclass(slots=True)
class FlowBatch:
    """R edits and N noised copies of their targets.

    Attributes:
        inputs: of the text encoders, a row an edit.
        shown: the images of each edit, uint8 [3, H, W] each.
        targets: of each noised copy, uint8 [3, H, W], one array for all copies of an image; or clean latents [G, C].
        shapes: as in `FlowCondition`.
        rows: which edit each noised copy is of.
        noise: [G, C] of each copy. levels: [N], the noise levels.
    """

    inputs: dict[str, Any]
    shown: list[list[Tensor]]
    targets: list[Tensor]
    shapes: list[tuple[Grid, ...]]
    rows: list[int]
    noise: list[Tensor]
    levels: Tensor

    def to(self, device: torch.device) -> FlowBatch:
        """The same on another device."""
        targets = {id(target): target.to(device) for target in self.targets}
        return replace(
            self,
            inputs={
                key: tensor.to(device) if isinstance(tensor, Tensor) else tensor for key, tensor in self.inputs.items()
            },
            shown=[[image.to(device) for image in images] for images in self.shown],
            targets=[targets[id(target)] for target in self.targets],
            noise=[tensor.to(device) for tensor in self.noise],
            levels=self.levels.to(device),
        )

    @property
    def tokens(self) -> int:
        """Latent tokens that are learned."""
        return sum(h * w for h, w in (self.shapes[row][0] for row in self.rows))


def edits_of(example: Example, editing: bool = True) -> list[Edit]:
    """The edits that an example stands for.

    Args:
        editing: whether they may show images.

    Raises:
        UserError: it has shown images, no words, nothing to draw, or texts to be learned.
    """
    hint = _EDITS if editing else _CAPTIONS
    edits: list[Edit] = []
    if not example.turns:
        target = example.target if example.states is None else example.states
        if example.thought is not None and example.learn_thought:
            raise UserError("its thought is to be learned, but this model learns images alone", hint)
        prompt = example.prompt if example.thought is None else with_thought(example.prompt, example.thought)
        if target is not None and example.answer is None:
            edits.append(Edit(prompt, example.images, target))
    images: list[np.ndarray] = []
    words: list[str] = []
    for turn in example.turns:
        if turn.image is None:
            if turn.learn:
                raise UserError("it has texts to be learned, but this model learns images alone", hint)
            words.append(turn.text or "")
        elif turn.learn:
            edits.append(Edit("\n".join(words), tuple(images), turn.image))
            images, words = [turn.image], []
        else:
            images.append(turn.image)
    if not edits:
        raise UserError("there is no image to learn, only text", hint)
    for edit in edits:
        if edit.images and not editing:
            raise UserError("there is an input image: this model does not edit", hint)
        if editing and not edit.prompt.strip():
            raise UserError("there is no instruction", hint)
    return edits


def with_thought(prompt: str, thought: str) -> str:
    """Words to draw by after thinking: as one longer instruction, which is what the transformer knows how to read."""
    return f"{prompt}\n{thought}"


_KEPT: Any = SimpleNamespace(random=lambda: 1.0)  # nothing is left out


def draws(example: Example) -> random.Random:
    """The generator of what is left out of an example."""
    return random.Random(derive_seed(example.seed, "dropout")) if example.noise_level is None else _KEPT


def copies_of(example: Example) -> int:
    """How many noised copies of each learned image there are."""
    return example.noise_draws if example.states is None else len(example.states.t)


def noise_of(example: Example, edit: int, draw: int, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Noise of a size, and the normal draw that its level comes from; both from the example's seed alone."""
    generator = torch.Generator().manual_seed(derive_seed(example.seed, "noise", edit, draw))
    return torch.randn(*size, generator=generator), torch.randn((), generator=generator)


_EDITS = "Give rows with an instruction and the edited image, and input images if any (form=edit or form=items)."
_CAPTIONS = "Give rows of one image and its caption (form=text_to_image)."
