"""Janus's batches of text with shapes alone, for `plan` and `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from uni_train.models.base import Example, FlowPolicy
from uni_train.models.janus.training import TrainableJanus
from uni_train.models.shapes import ImageRequest, Shapes


class JanusShapes(Shapes):
    model: TrainableJanus

    def __init__(self, model: TrainableJanus) -> None:
        vq = model.janus.config.vq_config
        super().__init__(model, 2 ** (len(vq.channel_multiplier) - 1), vq.embed_dim)

    def _sizes(self, examples: Sequence[Example]) -> tuple[int, int]:
        """Tokens of the longest example without its end, and learned tokens of all."""
        answers = [len(self.model.tokenizer.encode(self.model.texts(example)[1] or "")) for example in examples]
        return max(map(self.model.example_tokens, examples)) - 1, sum(answers)

    def condition(self, image_request: ImageRequest, rows: int, device: str) -> Any:
        """Raises SkillMissing: it draws tokens, and in no steps of a flow."""
        raise self.model.missing(FlowPolicy)

    def tensors(self, condition: Any) -> list[Tensor]:
        """Raises SkillMissing, as `condition`."""
        raise self.model.missing(FlowPolicy)

    def loss(self, examples: Sequence[Example], ce_weight: float, mse_weight: float) -> Callable[[], Tensor]:
        """Without the vision encoder, which is not trained."""
        length, learned = self._sizes(examples)
        sizes = {"input_ids": (len(examples), length), "places": (learned,), "labels": (learned,)}
        batch = {name: torch.empty(size, dtype=torch.int64, device="meta") for name, size in sizes.items()}
        return lambda: ce_weight * self.model.supervised_loss(batch).ce_sum

    def describe(self, batches: Sequence[Sequence[Example]]) -> list[str]:
        everything = [example for examples in batches for example in examples]
        tokens = sum(map(self.model.example_tokens, everything))
        learned = self._sizes(everything)[1]
        lines = [f"one update: {len(everything)} examples, {tokens:,} tokens; learned: {learned:,} text tokens"]
        if len(batches) > 1:
            lines.append(f"  {len(batches)} micro-batches, the first of them:")
        return [*lines, f"  text tokens [{len(batches[0])}, {self._sizes(batches[0])[0]:,}]"]
