"""A model without its checkpoint's weights: enough to count parameters, lay out batches and follow shapes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uni_train.config.schema import EditingConfig, ModelConfig
from uni_train.models.bagel.checkpoint import on_meta
from uni_train.models.bagel.prompts import THINK_THEN_DRAW
from uni_train.models.bagel.tokenizer import has_tokenizer, read_tokenizer
from uni_train.models.bagel.unified import BagelUnified, Sampling, Speech

if TYPE_CHECKING:
    from uni_train.models.qwen_image_edit.unified import QwenImageEdit

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


def bagel_skeleton(config: ModelConfig, seed: int = 0) -> tuple[BagelUnified, bool]:
    """A BAGEL on the meta device (nano with random weights), and whether its tokenizer is a guess.

    Raises:
        UserError: the checkpoint folder holds something else than this model.
    """
    if config.name in ("nano", "nano_edit"):
        from uni_train.models.nano import edit, nano

        return (edit if config.name == "nano_edit" else nano).build(config, seed), False
    bagel, vae = on_meta(config)
    folder = Path(config.checkpoint) if config.checkpoint is not None else None
    known = folder is not None and folder.is_dir() and has_tokenizer(folder)
    tokenizer = read_tokenizer(folder) if known and folder is not None else Guess()
    speech, sampling = Speech(THINK_THEN_DRAW), Sampling.of(config.sampling)
    size = config.architecture.image_size
    return BagelUnified(config.name, bagel, vae, tokenizer, speech, sampling, size), not known


def editor_skeleton(config: ModelConfig) -> tuple[QwenImageEdit, bool]:
    """A Qwen-Image-Edit on the meta device, and whether its tokenizer is a guess.

    Raises:
        UserError: the checkpoint folder holds something else than this model.
    """
    from uni_train.flow.schedule import DynamicShift
    from uni_train.models.qwen_image_edit import checkpoint as editor
    from uni_train.models.qwen_image_edit.unified import EditSampling, QwenImageEdit

    parts = editor.on_meta(config)
    processor = editor.read_processor(config)
    sampling, editing = EditSampling.of(config), config.editing or EditingConfig()
    model = QwenImageEdit(config.name, *parts, processor or Guess(), DynamicShift(), sampling, editing)
    return model, processor is None
