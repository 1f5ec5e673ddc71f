"""BAGEL as a UnifiedModel: requests and examples in, segments to the decoder, texts and pictures out.

How a conversation is laid out (official): [image] [system prompt] [prompt] [thought] [target]. Think mode puts a system
prompt before the prompt, and the thought between prompt and image; Normal has neither. Training examples are laid out
in examples.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from data_gen.seeds import derive_seed
from uni_train.flow.guidance import Guidance
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.examples import ExamplePacker, NoiseLevels, pixels, supervised_loss, token_counts
from uni_train.models.bagel.generation import Conditions, generate_text, guidance_contexts, prefill, sample_latents
from uni_train.models.bagel.packing import PackedBatch, Segment, Text, VitImage
from uni_train.models.bagel.positions import patchify, unpatchify
from uni_train.models.base import Example, Request, SupervisedLoss, UnifiedModel


class Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Speech:
    """The fixed sentences of a checkpoint.

    think_system: the system prompt of think mode. verification: how to ask whether a picture answers "{question}";
    None: with the paper's own words.
    """

    think_system: str
    verification: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """steps: Euler steps. max_think_tokens: of a thought or answer. temperature: 0 is greedy."""

    steps: int
    timestep_shift: float
    guidance: Guidance
    max_think_tokens: int
    temperature: float = 0.0


class BagelUnified(UnifiedModel):
    """A BAGEL with its VAE and tokenizer.

    Args:
        image_size: height and width in pixels of the pictures it draws.
        noise_levels: how training draws t before the shift: "logit_normal" (BAGEL) or "uniform".
    """

    def __init__(
        self,
        name: str,
        bagel: Bagel,
        vae: nn.Module,
        tokenizer: Tokenizer,
        speech: Speech,
        sampling: Sampling,
        image_size: int,
        noise_levels: NoiseLevels = "logit_normal",
    ) -> None:
        super().__init__()
        self.name = name
        self.bagel = bagel
        self.vae = vae.requires_grad_(False)
        self.tokenizer = tokenizer
        self.speech = speech
        self.sampling = sampling
        self.image_size = image_size
        self.examples = ExamplePacker(bagel, vae, tokenizer, speech.think_system, image_size, noise_levels)

    # --- training (examples.py) ----------------------------------------------------------------------------------

    def prepare_training(self, *, timestep_shift: float, text_dropout: float) -> None:
        self.bagel.config = replace(self.bagel.config, timestep_shift=timestep_shift)
        self.examples.text_dropout = text_dropout

    def collate(self, examples: Sequence[Example], seed: int) -> list[PackedBatch]:
        """Examples to a few packed batches, each of rows of like length. All draws come from `Example.seed`."""
        return self.examples.pack(examples)

    def supervised_loss(self, batch: Sequence[PackedBatch]) -> SupervisedLoss:
        """Cross-entropy and velocity error (BAGEL's two objectives), summed over the packed batches."""
        return supervised_loss(self.bagel, batch)

    def token_counts(self, batch: Sequence[PackedBatch]) -> tuple[int, int]:
        """Supervised text tokens and noised latent tokens."""
        return token_counts(batch)

    # --- inference ---------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def think(self, requests: Sequence[Request], temperature: float | None = None) -> list[str]:
        """The text after [system prompt] [prompt]; images, if any, come first."""
        return self._write(
            requests,
            [self._context(request, [Text(self.tokenizer.encode(self.speech.think_system))]) for request in requests],
            temperature,
        )

    @torch.inference_mode()
    def answer(self, requests: Sequence[Request]) -> list[str]:
        """The text after [images] [prompt]."""
        return self._write(requests, [self._context(request) for request in requests])

    @torch.inference_mode()
    def draw(self, requests: Sequence[Request]) -> list[np.ndarray]:
        """Pictures by Euler's method from each request's own noise."""
        sampling, tokenizer = self.sampling, self.tokenizer
        contexts = []
        for request in requests:
            system = [] if request.thought is None else [Text(tokenizer.encode(self.speech.think_system))]
            thought = [] if request.thought is None else [Text(tokenizer.encode(request.thought))]
            contexts.append(guidance_contexts(self._inputs(request), system, thought))
        guided = sampling.guidance.text_scale > 1
        conditions = Conditions(
            prefill(self.bagel, [full for full, _, _ in contexts]),
            prefill(self.bagel, [no_text for _, no_text, _ in contexts]) if guided else None,
            prefill(self.bagel, [no_images for *_, no_images in contexts]) if guided else None,
        )
        height, width = self._latent_grid
        size = (height * width, self.bagel.config.latent_dim)
        noise = torch.stack([torch.randn(size, generator=self._generator(r, "draw")) for r in requests])
        latents = sample_latents(
            self.bagel,
            conditions,
            noise.to(self.device),
            [self._latent_grid] * len(requests),
            num_timesteps=sampling.steps + 1,
            timestep_shift=sampling.timestep_shift,
            guidance=sampling.guidance,
        )
        grids = [unpatchify(latent, self._latent_grid, self.bagel.config.latent_patch_size) for latent in latents]
        images = self.vae.decode(torch.stack(grids).to(next(self.vae.parameters()).dtype))  # type: ignore[operator]
        scaled = (images.float() * 0.5 + 0.5).clamp(0, 1) * 255
        return list(scaled.to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy())

    def verification_prompt(self, question: str) -> str | None:
        template = self.speech.verification
        return None if template is None else template.replace("{question}", question)

    def describe(self) -> dict[str, Any]:
        return {"bagel": self.bagel.config.to_dict(), "image_size": self.image_size}

    def _write(
        self, requests: Sequence[Request], contexts: Sequence[Sequence[Segment]], temperature: float | None = None
    ) -> list[str]:
        temperature = self.sampling.temperature if temperature is None else temperature
        generators = [self._generator(r, "write") for r in requests] if temperature > 0 else None
        ids, _ = generate_text(
            self.bagel,
            prefill(self.bagel, contexts),
            self.sampling.max_think_tokens,
            temperature=temperature,
            generators=generators,
            close=False,
        )
        return [self.tokenizer.decode(row) for row in ids]

    def _context(self, request: Request, system: Sequence[Segment] = ()) -> list[Segment]:
        inputs = self._inputs(request)
        return [*inputs[:-1], *system, inputs[-1]]

    def _inputs(self, request: Request) -> list[Segment]:
        """Images, then the prompt, as segments."""
        images: list[Segment] = [VitImage(self._vit_grid, self._patches(image)) for image in request.images]
        return [*images, Text(self.tokenizer.encode(request.prompt))]

    def _generator(self, request: Request, use: str) -> torch.Generator:
        return torch.Generator().manual_seed(derive_seed(request.seed, use))

    # --- layout ------------------------------------------------------------------------------------------------

    @property
    def _latent_grid(self) -> tuple[int, int]:
        side = self.image_size // (int(self.vae.downsample) * self.bagel.config.latent_patch_size)  # type: ignore[arg-type]
        return side, side

    @property
    def _vit_grid(self) -> tuple[int, int]:
        assert self.bagel.config.vit is not None
        side = self.image_size // self.bagel.config.vit.patch_size
        return side, side

    def _patches(self, image: np.ndarray) -> np.ndarray:
        assert self.bagel.config.vit is not None
        return patchify(pixels([image])[0], self.bagel.config.vit.patch_size).numpy()
