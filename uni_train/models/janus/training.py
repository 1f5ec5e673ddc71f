"""Janus taught in text: the next token of an answer, in the chat that `answer` asks by.

The decoder learns, with its embeddings and its head. Images may be shown. None is learned: neither the SigLIP nor what
draws is trained here, but the decoder that draws is the same (Chen et al. 2025, arXiv 2501.17811).

Shapes: B examples, L tokens of the longest, T learned tokens of all, N shown images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from uni_train.core.errors import UserError
from uni_train.models.base import Example, SkillMissing, SupervisedLoss, Trainable
from uni_train.models.batches import check_markers
from uni_train.models.janus.unified import MARKERS, SYSTEM, Janus, chat

_LAYERS = r"janus\.model\.language_model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"


class TrainableJanus(Janus, Trainable):
    """A Janus that learns answers.

    Attributes:
        source: the folder that it came from, whose small files go into every one that is saved.
    """

    trained_parts: ClassVar[Mapping[str, str]] = {"understanding": r"\.(language_model|lm_head)\."}
    adapter_layers: ClassVar[Mapping[str, str]] = {"understanding": _LAYERS, "both": _LAYERS}
    source: Path

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.janus.model.language_model.requires_grad_(True)
        self.janus.lm_head.requires_grad_(True)

    def prepare_training(
        self,
        *,
        timestep_shift: float,
        text_dropout: float,
        vit_dropout: float = 0.0,
        vae_dropout: float = 0.0,
        activation_checkpointing: int = 0,
    ) -> None:
        """All but the last argument is of images that are drawn."""
        newer = hasattr(self.janus, "activation_checkpointing_enable")  # transformers renames both
        verb = "enable" if activation_checkpointing else "disable"
        getattr(self.janus, f"{'activation' if newer else 'gradient'}_checkpointing_{verb}")()
        layers = (module for module in self.janus.modules() if isinstance(module, GradientCheckpointingLayer))
        for number, layer in enumerate(layers):
            layer.gradient_checkpointing = bool(activation_checkpointing) and number % activation_checkpointing == 0

    def texts(self, example: Example) -> tuple[str, str | None]:
        """The question and the answer as they are read; None: there is no answer.

        Raises:
            SkillMissing: an image to draw, a thought, or turns. UserError: a text has a marker of images in it.
        """
        if example.target is not None or example.states is not None:
            raise SkillMissing(self.name, "learn to draw: it is taught texts alone")
        if example.thought is not None or example.turns:
            raise SkillMissing(self.name, "learn thoughts or turns: it is taught questions and answers")
        for noun, text in (("prompt", example.prompt), ("answer", example.answer or "")):
            check_markers(text, MARKERS, f"its {noun}")
        question = self._with_places(chat(example.prompt, len(example.images), SYSTEM))
        return question, None if example.answer is None else f" {example.answer.strip()}"

    def collate(self, examples: Sequence[Example], seed: int) -> dict[str, Tensor]:
        """Questions and answers; nothing is drawn from a seed.

        Rows are padded on the right, where a causal decoder reads no padding.

        Returns:
            input_ids int64 [B, L]; places int64 [T], of the token before each learned one in the flattened [B L];
            labels int64 [T]; with images pixel_values float32 [N, 3, H, W].
        """
        rows: list[tuple[list[int], list[int]]] = []
        for example in examples:
            question, answer = self.texts(example)
            if answer is None:
                raise UserError(f"there is no answer to {example.prompt[:60]!r}", "Give rows with an answer in text.")
            # The first token stands before the whole chat, the last behind an answer.
            reply = [*self.tokenizer.encode(answer)[1:], self.tokenizer.eos_token_id]
            rows.append((self.tokenizer.encode(question), reply))
        texts = [torch.tensor([*question, *reply[:-1]]) for question, reply in rows]
        ids_BL = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        starts = [row * ids_BL.shape[1] + len(question) - 1 for row, (question, _) in enumerate(rows)]
        places = [start + i for start, (_, reply) in zip(starts, rows, strict=True) for i in range(len(reply))]
        labels = [token for _, reply in rows for token in reply]
        batch = {"input_ids": ids_BL, "places": torch.tensor(places), "labels": torch.tensor(labels)}
        images = [image for example in examples for image in example.images]
        return batch | ({"pixel_values": self._pixels(images)} if images else {})

    def supervised_loss(self, batch: dict[str, Tensor]) -> SupervisedLoss:
        """Cross-entropy of the answers and their end; nothing is learned of images."""
        pixels = batch.get("pixel_values")
        read = self.janus.model(input_ids=batch["input_ids"], pixel_values=pixels, use_cache=False)
        logits_TV = self.janus.lm_head(read.last_hidden_state.flatten(0, 1)[batch["places"]])
        ce = nn.functional.cross_entropy(logits_TV.float(), batch["labels"], reduction="sum")
        none = torch.zeros_like(ce)
        return SupervisedLoss(ce, none + len(batch["labels"]), none, none)

    def token_counts(self, batch: dict[str, Tensor]) -> tuple[int, int]:
        """Learned text tokens, and latent tokens (none)."""
        return len(batch["labels"]), 0

    def example_tokens(self, example: Example) -> int:
        """Those of a question alone, too; an answer's end counts in place of its first token."""
        return sum(len(self.tokenizer.encode(text)) for text in self.texts(example) if text is not None)
