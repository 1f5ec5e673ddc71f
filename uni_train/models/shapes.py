"""Shapes without numbers: what a family tells `plan` and `--dry-run` about batches of models that have no weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from uni_train.models.base import Example, Request

CHARACTERS = 4
"""To a token, where there is no tokenizer."""


class Guess:
    """Stands in for a tokenizer when only numbers of tokens matter."""

    def encode(self, text: str) -> list[int]:
        return [0] * self.count(text)

    def count(self, text: str) -> int:
        return -(-len(text) // CHARACTERS)

    def decode(self, ids: Sequence[int]) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """One prompt of a recipe as the model receives it, and the size of the answer in latent tokens."""

    request: Request
    tokens: int
    channels: int
    stride: int
    grid: tuple[int, int]


class Shapes(ABC):
    """Of one model that draws, whose weights may be on the meta device.

    Attributes:
        stride: pixels a side of a latent token. channels: numbers in one.
        prompt: stands for prompts that cannot be read; 32 tokens, also where characters are counted.
    """

    prompt = "the " * 32

    def __init__(self, model: Any, stride: int, channels: int) -> None:
        self.model, self.stride, self.channels = model, stride, channels

    def image_request(self, request: Request) -> ImageRequest:
        """The size of the image that the model draws for a request."""
        h, w = (side // self.stride for side in self.model.picture_size(request))
        return ImageRequest(request, h * w, self.channels, self.stride, (h, w))

    @abstractmethod
    def condition(self, image_request: ImageRequest, rows: int, device: str) -> Any:
        """What `model.encode` would return for `rows` such requests, without reading them."""

    @abstractmethod
    def tensors(self, condition: Any) -> list[Tensor]:
        """What a condition keeps in memory."""

    @abstractmethod
    def loss(self, examples: Sequence[Example], ce_weight: float, mse_weight: float) -> Callable[[], Tensor]:
        """The supervised loss of a micro-batch of these examples, to be called on the meta device."""

    def kept_texts(self) -> int:
        """Bytes that a training keeps at most of texts which frozen weights have read; `requires_grad` is as there."""
        return 0

    @abstractmethod
    def describe(self, batches: Sequence[Sequence[Example]]) -> list[str]:
        """Lines for people about an update: examples, tokens, shapes. `batches`: its micro-batches."""
