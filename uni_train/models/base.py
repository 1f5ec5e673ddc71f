"""What every unified multimodal model can be asked: think, draw, answer; and how it is trained on examples.

Nothing is emulated in silence: a model that lacks a skill raises `SkillMissing`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.errors import UserError


class SkillMissing(UserError):
    """The model cannot do what it was asked, e.g. think before it draws."""

    def __init__(self, model: str, skill: str) -> None:
        super().__init__(f"{model} cannot {skill}", hint="choose another model, or a recipe that does not need it")
        self.skill = skill


@dataclass(frozen=True, slots=True)
class Request:
    """One thing a model is asked.

    Attributes:
        id: names the request in errors and files.
        prompt: what the user says.
        images: uint8 [H, W, 3] each, shown before the prompt.
        thought: for `draw`: the reasoning to draw by (CoT); None draws from the prompt alone (Normal).
        seed: decides all randomness of this request, so that its result does not depend on its batch.
    """

    id: str
    prompt: str
    images: tuple[np.ndarray, ...] = ()
    thought: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One text or one image of an interleaved example (one of the two is given).

    `learn`: with loss. An image that is learned and followed by more is shown after that, as if it had been given.
    """

    text: str | None = None
    image: np.ndarray | None = None
    learn: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """One thing a model is trained on; which of the optional parts are there says what is learned.

    Images that are shown in an example with an image to be drawn are conditions of editing, else only to be understood.

    Attributes:
        prompt: what the user says (no loss).
        images: uint8 [H, W, 3], shown before the prompt (no loss): captioning, verification, editing.
        thought: reasoning in think mode; trained with cross-entropy if `learn_thought`.
        target: uint8 [H, W, 3] to be drawn; trained with the rectified-flow loss.
        answer: text reply; trained with cross-entropy.
        noise_draws: how many noised copies of the target follow the same text.
        learn_thought: False shows the thought without learning to say it.
        turns: any order of texts and images, in place of all the parts above but `noise_draws`.
        seed: decides the noise of this example (levels, latents), whatever batch or rank it lands in.
    """

    prompt: str = ""
    images: tuple[np.ndarray, ...] = ()
    thought: str | None = None
    target: np.ndarray | None = None
    answer: str | None = None
    noise_draws: int = 1
    learn_thought: bool = True
    turns: tuple[Turn, ...] = ()
    seed: int = 0


@dataclass(slots=True)
class SupervisedLoss:
    """Sums and counts of a batch, scalars, so that the trainer can normalise by the counts of all ranks.

    Attributes:
        ce_sum, ce_tokens: cross-entropy in nats over the supervised text tokens, and their number.
        mse_sum, mse_tokens: squared velocity error (mean over channels) over the noised latent tokens, their number.
    """

    ce_sum: Tensor
    ce_tokens: Tensor
    mse_sum: Tensor
    mse_tokens: Tensor


class UnifiedModel(nn.Module, ABC):
    """A model that reads, reasons in text, and draws."""

    name: str

    @abstractmethod
    def think(self, requests: Sequence[Request], temperature: float | None = None) -> list[str]:
        """The reasoning before drawing (CoT), one text a request; `temperature` replaces the model's own."""

    @abstractmethod
    def draw(self, requests: Sequence[Request]) -> list[np.ndarray]:
        """One picture a request, uint8 [H, W, 3], by `request.thought` where it has one."""

    @abstractmethod
    def answer(self, requests: Sequence[Request]) -> list[str]:
        """A text reply to the images and the prompt, one a request."""

    @abstractmethod
    def collate(self, examples: Sequence[Example], seed: int) -> Any:
        """Examples to a batch of tensors, with all the batch's randomness drawn from `seed`."""

    @abstractmethod
    def supervised_loss(self, batch: Any) -> SupervisedLoss:
        """Cross-entropy and velocity error of a collated batch."""

    def prepare_training(self, *, timestep_shift: float, text_dropout: float) -> None:
        """How examples are noised from now on: the shift of the noise levels, the share of prompts left out."""
        raise SkillMissing(self.name, "be trained with a shift of noise levels or text dropout")

    def verification_prompt(self, question: str) -> str | None:
        """How this model wants to be asked whether a picture answers a question; None: with the paper's own words."""
        return None

    def replay_rows(self) -> Mapping[str, tuple[float, Callable[[random.Random], Example]]] | None:
        """Kinds of pretraining rows that keep old skills alive: name -> (share, maker); None if there are none."""
        return None

    def describe(self) -> dict[str, Any]:
        """What config.json says beside the weights: sizes, JSON-able."""
        return {}

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device
