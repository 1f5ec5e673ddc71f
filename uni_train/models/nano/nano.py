"""nano itself: a BAGEL of a million and a half parameters that draws 24 x 24 images.

What is small: every size. The rest is the same: twin weights with joint attention, QK norm, one rope position per
image. A ViT reads input images; drawn images are VAE latents with BAGEL's velocity objective.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from uni_train.config.schema import ModelConfig
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.config import BagelConfig
from uni_train.models.bagel.unified import BagelUnified, Speech
from uni_train.models.base import Example
from uni_train.models.nano import language
from uni_train.models.nano.lookup import add_lookup_heads
from uni_train.models.nano.tokenizer import WordTokenizer
from uni_train.models.nano.vae import PatchVAE

# What is replayed while STARS fine-tunes: shares of kinds of pretraining rows, for recipes with maths and for others.
REPLAY = {
    "text_to_image": 0.1,
    "cot_image": 0.25,
    "cot_text": 0.2,
    "mapping_answer": 0.1,
    "maths_answer": 0.1,
    "caption": 0.1,
    "verify": 0.15,
}
MATHS_REPLAY = {
    "text_to_image": 0.05,
    "cot_image": 0.15,
    "cot_text": 0.35,
    "maths_answer": 0.1,
    "facts": 0.2,
    "caption": 0.05,
    "verify": 0.1,
}

_OTHERS = (
    "nano knows only the words and sprites of `data make --world nano`. Other data: recipe sft, whose model is "
    "bagel_7b; edits also with model=qwen_image_edit_2511."
)


class Nano(BagelUnified):
    """A BagelUnified that knows its own pretraining rows and how it wants to be asked for a verification."""

    family = "nano"

    def replay_rows(self, tasks: Collection[str]) -> Mapping[str, tuple[float, Callable[[random.Random], Example]]]:
        from uni_train.models.nano import replay

        makers = replay.sources(noise_draws=2)
        shares = MATHS_REPLAY if "maths" in tasks else REPLAY
        return {name: (share, makers[name]) for name, share in shares.items()}

    def example_tokens(self, example: Example) -> int:
        """Raises UserError for a word that nano does not know, or an image that is no sprite."""
        side = self.image_size
        for image in (example.target, *example.images, *(turn.image for turn in example.turns)):
            if image is not None and image.shape[:2] != (side, side):
                height, width = image.shape[:2]
                raise UserError(f"nano draws {side} x {side} pixels, and this image has {width} x {height}", _OTHERS)
        try:
            return super().example_tokens(example)
        except UserError as error:
            raise UserError(error.message, _OTHERS) from None


def build(config: ModelConfig, seed: int, words: Sequence[str] | None = None) -> Nano:
    """nano with fresh weights; on the meta device without them. `words`: that it knows; None: its own."""
    sizes = config.architecture
    tokenizer = WordTokenizer(words or language.vocabulary())
    bagel = Bagel(
        BagelConfig.from_sizes(
            sizes,
            len(tokenizer),
            tokenizer.tokens,
            vit_patches_per_side=sizes.image_size // sizes.vit_patch,
        )
    )
    vae = PatchVAE(sizes.latent_channels, downsample=sizes.latent_downsample)
    if not bagel.llm2vae.weight.is_meta:
        bagel.init_weights(derive_seed(seed, "nano"))
        add_lookup_heads(bagel, derive_seed(seed, "induction"))
        _init_vae(vae, derive_seed(seed, "nano vae"))
    drawn = config.sampling
    return Nano(
        config.name,
        bagel,
        vae,
        tokenizer,
        Speech(language.THINK_SYSTEM),
        replace(
            drawn,  # from images as from text
            edit_text_scale=drawn.cfg_text_scale,
            edit_img_scale=drawn.cfg_img_scale,
            edit_interval=drawn.cfg_interval,
            edit_renorm=drawn.cfg_renorm,
        ),
        image_size=sizes.image_size,
        noise_levels="uniform",
    )


def _init_vae(vae: PatchVAE, seed: int) -> None:
    """PyTorch's own initialisation, from `seed` and not from the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in vae.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                module.reset_parameters()
