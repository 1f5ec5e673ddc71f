"""Batches and conditions of flow-matching models with shapes alone, for `plan` and `--dry-run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from uni_train.models.base import Example, Request
from uni_train.models.diffusers.condition import FlowCondition, Words
from uni_train.models.diffusers.examples import copies_of
from uni_train.models.diffusers.flow_matching import FlowMatchingModel
from uni_train.models.shapes import ImageRequest, Shapes


class FlowShapes(Shapes):
    model: FlowMatchingModel

    def __init__(self, model: FlowMatchingModel) -> None:
        super().__init__(model, model.latents.stride, model.latents.channels)

    def condition(self, image_request: ImageRequest, rows: int, device: str) -> FlowCondition:
        model, request = self.model, image_request.request
        grids = model.shown_grids(request.images)
        shown = (sum(h * w for h, w in grids), image_request.channels)
        unguided = replace(request, prompt=model.negative or "")
        return FlowCondition(
            [self._words(request, device) for _ in range(rows)],
            [self._words(unguided, device) for _ in range(rows)] if model.guided else None,
            [torch.empty(shown, device=device) for _ in range(rows)],
            [(image_request.grid, *grids)] * rows,
            list(range(rows)),
        )

    def _words(self, request: Request, device: str) -> Words:
        model = self.model
        config, tokens = model.transformer.config, model.text_tokens(request.prompt, request.images)
        sizes: dict[str, tuple[int, ...]] = {
            "encoder_hidden_states": (model.chat_tokens + tokens, config.joint_attention_dim)
        }
        if "pooled_projection_dim" in config:
            sizes["pooled_projections"] = (config.pooled_projection_dim,)
        return {name: torch.empty(size, dtype=model.transformer.dtype, device=device) for name, size in sizes.items()}

    def tensors(self, condition: FlowCondition) -> list[Tensor]:
        words = [*condition.words, *(condition.empty or [])]
        return [*(value for word in words for value in word.values()), *condition.shown]

    def loss(self, examples: Sequence[Example], ce_weight: float, mse_weight: float) -> Callable[[], Tensor]:
        """The flow loss of edits of the size of the first one, under conditions that are there: reading them happens
        before, without gradients."""
        edits = [
            edit for example in examples for edit in self.model.edits_of(example) for _ in range(copies_of(example))
        ]
        first, rows = edits[0], len(edits)
        size = self.model._target_size(first.target)
        first_request = self.image_request(Request("edit", first.prompt, first.images, size=size))

        def loss() -> Tensor:
            under = replace(self.condition(first_request, rows, "meta"), empty=None)
            x, noise = (
                torch.empty(rows, first_request.tokens, first_request.channels, device="meta") for _ in range(2)
            )
            velocity = self.model.velocity(x, torch.empty(rows, device="meta"), under)
            return mse_weight * (velocity - noise).square().mean(-1).sum()

        return loss

    def describe(self, batches: Sequence[Sequence[Example]]) -> list[str]:
        model = self.model
        everything = [example for examples in batches for example in examples]
        edits = sum(len(model.edits_of(example)) for example in everything)
        tokens = sum(model.example_tokens(example) for example in everything)
        learned = sum(
            model.shape(edit)[0] * copies_of(example) for example in everything for edit in model.edits_of(example)
        )
        what = "edits" if model.shows_images else "images"
        lines = [f"one update: {edits} {what}, {tokens:,} tokens; learned: 0 text tokens, {learned:,} latent tokens"]
        if len(batches) > 1:
            lines.append(f"  {len(batches)} micro-batches, the first of them:")
        first: Counter[tuple[int, int]] = Counter()
        for example in batches[0]:
            for edit in model.edits_of(example):
                first[model.shape(edit)] += copies_of(example)
        for (target, shown), rows in sorted(first.items()):
            more = f" + {shown:,} shown" if shown else ""
            lines.append(f"  latents [{rows}, {target:,}{more}, {model.latents.channels}]")
        return lines
