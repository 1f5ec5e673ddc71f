"""nano that edits: a BAGEL of half a million parameters that draws the way into a maze it is shown.

What differs from nano: its latents are the pixels themselves (a maze of 4 x 4 rooms is 20 x 20 pixels, a token a room
with its walls), it predicts the clean picture, its ViT takes the whole picture for one patch (the clean latents of the
input say all that is to be seen), and it reads one sentence, which is one token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from data_gen.maze.task import INSTRUCTION
from data_gen.seeds import derive_seed
from uni_train.config.schema import ModelConfig
from uni_train.errors import UserError
from uni_train.flow.guidance import Guidance
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.config import BagelConfig, SpecialTokens
from uni_train.models.bagel.images import ImageTransform
from uni_train.models.bagel.unified import BagelUnified, Sampling, Speech

SENTENCES = (INSTRUCTION,)


class Pixels(nn.Module):
    """The interface of an autoencoder, with pixels for latents: [B, 3, H, W] in [-1, 1], whatever the noise."""

    downsample = 1

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)

    def encode(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """As they are."""
        return images * self.scale

    def decode(self, latents: Tensor) -> Tensor:
        """As they are."""
        return latents / self.scale


class SentenceTokenizer:
    """One token a sentence; only those of `SENTENCES` are known."""

    bos_id, eos_id, start_of_image_id, end_of_image_id = range(4)

    def __len__(self) -> int:
        return 4 + len(SENTENCES)

    def encode(self, text: str) -> list[int]:
        """The sentence's id. Raises UserError for any other."""
        if text not in SENTENCES:
            raise UserError(
                f"nano_edit does not know the instruction {text[:120]!r}", f"All that it reads is: {INSTRUCTION}"
            )
        return [4 + SENTENCES.index(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """The sentences, joined; markers are left out."""
        return " ".join(SENTENCES[i - 4] for i in ids if i >= 4)


def build(config: ModelConfig, seed: int) -> BagelUnified:
    """With fresh weights."""
    sizes, tokenizer = config.architecture, SentenceTokenizer()
    token = sizes.latent_downsample * sizes.latent_patch
    bagel = Bagel(
        BagelConfig.from_sizes(
            sizes,
            len(tokenizer),
            SpecialTokens(tokenizer.bos_id, tokenizer.eos_id, tokenizer.start_of_image_id, tokenizer.end_of_image_id),
            vit_patches_per_side=1,
            prediction="clean",
        )
    )
    bagel.init_weights(derive_seed(seed, "nano_edit"))
    return BagelUnified(
        config.name,
        bagel,
        Pixels(),
        tokenizer,
        Speech(INSTRUCTION),
        Sampling(
            steps=config.sampling.steps,
            timestep_shift=config.sampling.timestep_shift,
            guidance=Guidance(),
            max_think_tokens=config.sampling.max_think_tokens,
        ),
        image_size=sizes.image_size,
        noise_levels="uniform",
        vae_transform=ImageTransform(sizes.image_size, token, token),  # pictures of any size stay as they are
    )
