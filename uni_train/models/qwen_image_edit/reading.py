"""How the Qwen2.5-VL of a Qwen-Image-Edit is asked: templates, the image-only processor, conditions and texts.

A picture is drawn under the last hidden states of the Qwen2.5-VL over a chat: a system prompt, the shown images and the
user's words. The system prompt asks it to describe the image and to explain the change; without images, to describe
the image that the words mean (Qwen-Image, arXiv 2508.02324). The system prompt's states are dropped.
`think` lets the same chat go on, so it says what that system prompt asks for.

Image tokens have three positions (time, row, column), as in pretraining. transformers 5 computes them only if the
caller marks the image tokens. diffusers up to 0.42 does not (huggingface/diffusers issue 14194): its tokens have
sequential positions. `positions` chooses: "spatial" as pretrained, "sequential" as those pipelines do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

Positions = Literal["spatial", "sequential"]
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
EDIT_SYSTEM = (
    "Describe the key features of the input image (color, shape, size, texture, objects, background), then explain how "
    "the user's text instruction should alter or modify the image. Generate a new image that meets the user's "
    "requirements while maintaining consistency with the original input where appropriate."
)
DRAW_SYSTEM = (
    "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the "
    "objects and background:"
)
"""The checkpoints were trained with exactly these words (they are in their pipelines)."""
_TEMPLATE_TOKENS = {EDIT_SYSTEM: 64, DRAW_SYSTEM: 34}
ANSWER_SYSTEM = "You are a helpful assistant."
_PAD = "<|image_pad|>"
END = "<|im_end|>"


def chat(system: str, user: str) -> str:
    """The chat up to where the assistant begins."""
    return f"<|im_start|>system\n{system}{END}\n<|im_start|>user\n{user}{END}\n<|im_start|>assistant\n"


def user_turn(prompt: str, images: int, plus: bool) -> str:
    """The shown images and the words: the Plus form numbers the images."""
    if plus:
        return "".join(f"Picture {i + 1}: {IMAGE}" for i in range(images)) + prompt
    return IMAGE * images + prompt


def draw_chat(prompt: str, looked: int, plus: bool, edits: bool) -> str:
    """The chat of an image. edits: images are shown, of which the chat has `looked`; else words alone are."""
    return chat(EDIT_SYSTEM if edits else DRAW_SYSTEM, user_turn(prompt, looked, plus))


def template_tokens(text: str) -> int:
    """Tokens of a `draw_chat` before the user's turn."""
    return _TEMPLATE_TOKENS[text.split("\n", 2)[1].removesuffix(END)]


def image_processor(folder: Path | None = None) -> Any:
    """The PIL form of the Qwen2-VL image processor, which needs no torchvision; from `folder`, else as released."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil() if folder is None else Qwen2VLImageProcessorPil.from_pretrained(folder)


class Processor:
    """Texts and images to the inputs of a Qwen2.5-VL.

    The stock processor insists on a video processor, and that on torchvision. This one takes its place in diffusers'
    pipelines as well (docs/models/qwen_image_edit.md shows how).
    """

    def __init__(self, image_processor: Any, tokenizer: Any) -> None:
        self.image_processor = image_processor
        self.tokenizer = tokenizer
        self.image_token = tokenizer.convert_tokens_to_ids(_PAD)

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.tokenizer(text)["input_ids"])

    def __call__(
        self,
        text: Sequence[str],
        images: Any = None,
        padding: bool = True,
        return_tensors: str = "pt",
        padding_side: Literal["left", "right"] = "right",
    ) -> Any:
        """input_ids and attention_mask int64 [B, L]; with images also pixel_values [patches, numbers a patch],
        image_grid_thw [images, 3] and mm_token_type_ids [B, L] (1 at image tokens).

        Args:
            images: pictures (PIL, or uint8 [H, W, 3]), those of the first text first; one, a list, or None.
            padding, return_tensors: taken as given here: rows are padded, tensors returned.
        """
        from transformers.feature_extraction_utils import BatchFeature

        inputs: dict[str, Any] = {}
        pieces = list(text)
        if images is not None and not (isinstance(images, list | tuple) and not images):
            inputs = dict(self.image_processor(images=images, return_tensors="pt"))
            merged = self.image_processor.merge_size**2
            counts = iter((inputs["image_grid_thw"].prod(-1) // merged).tolist())
            pieces = [re.sub(re.escape(_PAD), lambda _: _PAD * next(counts), piece) for piece in pieces]
        read = self.tokenizer(pieces, padding=True, padding_side=padding_side, return_tensors="pt")
        inputs |= {name: read[name] for name in ("input_ids", "attention_mask")}
        if "pixel_values" in inputs:
            inputs["mm_token_type_ids"] = (inputs["input_ids"] == self.image_token).int()
        return BatchFeature(inputs)


@torch.no_grad()
def hidden_states(text_encoder: nn.Module, inputs: dict[str, Tensor], positions: Positions) -> list[Tensor]:
    """What pictures are drawn under: [L, D] a row, without the system prompt's tokens.

    Args:
        inputs: of `Processor`, padded on the right; `template_tokens` int64 [B]: of each row's system prompt.
    """
    device = next(text_encoder.parameters()).device
    given = {name: value.to(device) for name, value in inputs.items()}
    starts = given.pop("template_tokens").tolist()
    if positions == "sequential":
        given.pop("mm_token_type_ids", None)
    states: Tensor = text_encoder.model(**given).last_hidden_state  # type: ignore[operator, union-attr]
    lengths = given["attention_mask"].sum(-1).tolist()
    return [row[start:length] for row, start, length in zip(states, starts, lengths, strict=True)]
