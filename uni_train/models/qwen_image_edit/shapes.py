"""Qwen-Image-Edit's batches and conditions with shapes alone, for `plan` and `--dry-run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from uni_train.models.base import Example, Request
from uni_train.models.qwen_image_edit.condition import EditCondition
from uni_train.models.qwen_image_edit.examples import copies_of, edits_of
from uni_train.models.qwen_image_edit.latents import fit_area
from uni_train.models.qwen_image_edit.unified import QwenImageEdit
from uni_train.models.shapes import ImageRequest, Shapes

_CHAT = 20  # tokens of the chat that are left around the words: the system prompt's are dropped


class EditShapes(Shapes):
    def __init__(self, model: QwenImageEdit) -> None:
        self.model = model

    def image_request(self, request: Request) -> ImageRequest:
        model = self.model
        seen = request.images[-1].shape[:2] if request.images else (1, 1)
        size = request.size or fit_area(model.sampling.side, *seen)
        return ImageRequest.from_request(request, size, model.latents.stride, model.latents.channels)

    def condition(self, image_request: ImageRequest, rows: int, device: str) -> EditCondition:
        model = self.model
        editing = model.editing
        side = editing.latent_size if editing.plus else model.sampling.side
        grids = [model.latents.grid(fit_area(side, *image.shape[:2])) for image in image_request.request.images]
        words = self.text_tokens(image_request.request)
        width = int(model.transformer.config.joint_attention_dim)

        def text(tokens: int) -> Tensor:
            return torch.empty(tokens, width, dtype=model.transformer.dtype, device=device)

        shown = sum(h * w for h, w in grids)
        guided = model.sampling.scale > 1
        unguided = words - model.processor.count(image_request.request.prompt) + 1
        return EditCondition(
            [text(words) for _ in range(rows)],
            [text(unguided) for _ in range(rows)] if guided else None,
            [torch.empty(shown, image_request.channels, device=device) for _ in range(rows)],
            [(image_request.grid, *grids)] * rows,
            list(range(rows)),
        )

    def text_tokens(self, request: Request) -> int:
        """Text tokens that the transformer reads: the words, and the images as the Qwen2.5-VL sees them."""
        side = self.model.editing.look_size if self.model.editing.plus else self.model.sampling.side
        looked = [fit_area(side, *image.shape[:2]) for image in request.images]
        return _CHAT + self.model.processor.count(request.prompt) + sum(h // 28 * (w // 28) for h, w in looked)

    def tensors(self, condition: EditCondition) -> list[Tensor]:
        return [*condition.text, *(condition.empty or []), *condition.latents]

    def loss(self, examples: Sequence[Example], ce_weight: float, mse_weight: float) -> Callable[[], Tensor]:
        """The flow loss of edits of the size of the first one, under conditions that are there: reading them happens
        before, without gradients."""
        edits = [edit for example in examples for edit in edits_of(example) for _ in range(copies_of(example))]
        first, rows = edits[0], len(edits)
        size = self.model._target_size(first.target)
        first_request = self.image_request(Request("edit", first.prompt, first.images, size=size))

        def loss() -> Tensor:
            under = self.condition(first_request, rows, "meta")
            x, noise = (
                torch.empty(rows, first_request.tokens, first_request.channels, device="meta") for _ in range(2)
            )
            velocity = self.model.velocity(x, torch.empty(rows, device="meta"), under)
            return mse_weight * (velocity - noise).square().mean(-1).sum()

        return loss

    def describe(self, batches: Sequence[Sequence[Example]]) -> list[str]:
        model = self.model
        everything = [example for examples in batches for example in examples]
        edits = sum(len(edits_of(example)) for example in everything)
        tokens = sum(model.example_tokens(example) for example in everything)
        learned = sum(model.shape(edit)[0] * copies_of(one) for one in everything for edit in edits_of(one))
        lines = [f"one update: {edits} edits, {tokens:,} tokens; learned: 0 text tokens, {learned:,} latent tokens"]
        if len(batches) > 1:
            lines.append(f"  {len(batches)} micro-batches, the first of them:")
        first: Counter[tuple[int, int]] = Counter()
        for example in batches[0]:
            for edit in edits_of(example):
                first[model.shape(edit)] += copies_of(example)
        for (target, shown), rows in sorted(first.items()):
            lines.append(f"  latents [{rows}, {target:,} + {shown:,} shown, {model.latents.channels}]")
        return lines
