"""nano that edits: a BAGEL of half a million parameters that draws the way into a maze, or solves a puzzle.

It differs from nano in four points. Its latents are the pixels themselves: a maze of 4 x 4 rooms is 20 x 20 pixels. A
token is a room with its walls. It predicts the clean image. Its ViT takes the whole image as one patch, because the
clean latents of the input hold all information. It reads one sentence, which is one token. With `model.thinks` it also
reads the steps of a way, as a thought. With `model.puzzles` it also reads the prompts of these puzzles, and with both
what is said before their steps (data_gen/chain_rows.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from uni_train.config.schema import ModelConfig, SamplingConfig
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.puzzle import END, MARK
from uni_train.data_gen.registry import get_task
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.config import BagelConfig, SpecialTokens
from uni_train.models.bagel.images import ImageTransform
from uni_train.models.bagel.mot import MotAttention
from uni_train.models.bagel.positions import sincos_table
from uni_train.models.bagel.unified import BagelUnified, Speech
from uni_train.models.base import Example, Request
from uni_train.models.nano.vae import Pixels

STEPS = ("From S go", *(f"{way} {n}" for way in ("right", "left", "down", "up") for n in range(1, 8)), "That is E")
_POSITIONS_BASE = 8.0
_BETWEEN = re.compile(r"[\s,.:]*")


@torch.no_grad()
def look_around(bagel: Bagel) -> None:
    """Let latent tokens begin with attention to their own place and those beside it, in all images alike.

    With BAGEL's initialisation they first have to learn which places belong together. That takes half of a run of
    minutes. `_POSITIONS_BASE` separates positions, since a maze is 8 rooms wide at most, not 64 latents. Positions also
    weigh more beside the pixels. Keys start as queries, so that equal positions match, with larger norms than 1.
    """
    table = bagel.latent_pos_embed
    table.pos_embed.copy_(2 * sincos_table(table.pos_embed.shape[1], table.side, _POSITIONS_BASE))
    for layer in bagel.language_model.model.layers:
        attention = layer.self_attn
        assert isinstance(attention, MotAttention)
        queries = attention.q_proj_moe_gen.weight.unflatten(0, (attention.kv_heads, -1, attention.head_dim))
        attention.k_proj_moe_gen.weight.copy_(queries[:, 0].flatten(0, 1))
        for norm in (attention.q_norm_moe_gen, attention.k_norm_moe_gen):
            norm.weight.fill_(1.5)


class SentenceTokenizer:
    """One token a sentence, or a part of one between signs of punctuation; only the instruction of mazes and those
    below are known.

    Attributes:
        instruction: what every maze asks.

    Args:
        steps: also know the description of a way into a maze, one token a leg ("right 2"), and what is said before the
            steps of the puzzles.
        puzzles: also know the prompts of these families in the style nano.

    Raises:
        DataError: a family whose prompts differ from puzzle to puzzle.
    """

    tokens = SpecialTokens(*range(4))

    def __init__(self, steps: bool = False, puzzles: Sequence[str] = ()) -> None:
        self.puzzles, self.thinks = tuple(puzzles), steps
        self.instruction = get_task("maze", "nano").sample(0, 3)[0].prompt
        tasks: list[Any] = [get_task(name, "nano") for name in puzzles]
        prompts = dict.fromkeys(chain.from_iterable(task.prompts() for task in tasks))
        self.sentences = (self.instruction, *prompts)
        self.pieces = (self.instruction, *(STEPS if steps else ()), *self.sentences[1:])
        if steps and tasks:
            self.pieces += (*dict.fromkeys(chain.from_iterable(task.move_phrases() for task in tasks)), MARK, END)
        known = "|".join(map(re.escape, sorted(self.pieces, key=len, reverse=True)))
        self._known = re.compile(rf"(?:{known})(?!\w)")

    def __len__(self) -> int:
        return 4 + len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """The ids of what a text is made of. Raises UserError for any other text."""
        ids: list[int] = []
        end = _BETWEEN.match(text).end()  # type: ignore[union-attr]
        while end < len(text) or (text.strip() and not ids):
            piece = self._known.match(text, end)
            if piece is None:
                steps = f"; {STEPS[0]} {STEPS[1]}, ... {STEPS[-1]}." if self.thinks else ""
                puzzles = f"; the nano prompts of {', '.join(self.puzzles)}." if self.puzzles else ""
                raise UserError(
                    f"nano_edit does not know the instruction {text[:120]!r}",
                    f"All that it reads is: {self.instruction}{steps}{puzzles}",
                )
            ids.append(4 + self.pieces.index(piece[0]))
            end = _BETWEEN.match(text, piece.end()).end()  # type: ignore[union-attr]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The sentences and parts of sentences, joined; markers are left out."""
        return ". ".join(self.pieces[i - 4] for i in ids if i >= 4)


class NanoEdit(BagelUnified):
    """A BagelUnified that reads images as they are, up to `image_size` pixels a side."""

    family = "nano"
    tokenizer: SentenceTokenizer

    def describe(self) -> dict[str, Any]:
        known = {"puzzles": list(self.tokenizer.puzzles), "thinks": self.tokenizer.thinks}
        return super().describe() | {name: value for name, value in known.items() if value}

    def example_tokens(self, example: Example) -> int:
        """Tokens of an example of which nothing is dropped. Raises UserError for an image that is too large."""
        for image in (example.target, *example.images, *(turn.image for turn in example.turns)):
            if image is not None:
                self._expect_fits(image)
        return super().example_tokens(example)

    def check(self, requests: Sequence[Request]) -> None:
        super().check(requests)
        for request in requests:
            for image in request.images:
                self._expect_fits(image)

    def _expect_fits(self, image: np.ndarray) -> None:
        most, side = max(image.shape[:2]), self.image_size
        if most > side:
            raise UserError(
                f"an image of {image.shape[0]} x {image.shape[1]} pixels is too large for {self.name}, which reads "
                f"{side} x {side} (height x width)",
                f"Train it with model.architecture.image_size={-(-most // self.stride) * self.stride}.",
            )


def build(config: ModelConfig, seed: int) -> NanoEdit:
    """With fresh weights; on the meta device without them."""
    sizes, tokenizer = config.architecture, SentenceTokenizer(config.thinks, config.puzzles)
    token = sizes.latent_downsample * sizes.latent_patch
    bagel = Bagel(
        BagelConfig.from_sizes(
            sizes,
            len(tokenizer),
            tokenizer.tokens,
            vit_patches_per_side=1,
            prediction="clean",
        )
    )
    if not bagel.llm2vae.weight.is_meta:
        bagel.init_weights(derive_seed(seed, "nano_edit"))
        look_around(bagel)
    return NanoEdit(
        config.name,
        bagel,
        Pixels(),
        tokenizer,
        Speech(tokenizer.instruction),
        SamplingConfig(  # unguided
            steps=config.sampling.steps,
            timestep_shift=config.sampling.timestep_shift,
            max_think_tokens=config.sampling.max_think_tokens,
            cfg_interval=(0.0, 1.0),
            edit_renorm="global",
            interleaving=config.sampling.interleaving,
            max_images=config.sampling.max_images,
        ),
        image_size=sizes.image_size,
        noise_levels="uniform",
        vae_transform=ImageTransform(sizes.image_size, token, token),  # images of any size stay as they are
    )
