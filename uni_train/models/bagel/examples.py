"""Training examples as BAGEL's packed batches, and the two losses of a batch.

An example is laid out as [images] [system prompt] [prompt] [thought] [answer | targets]. A target may be noised several
times after one text (`Example.noise_draws`), because noised images see the text but not each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.packing import Encoded, PackedBatch, Segment, Text, VaeImage, VitImage, encode, pack
from uni_train.models.bagel.positions import patchify
from uni_train.models.base import Example, SupervisedLoss

if TYPE_CHECKING:
    from uni_train.models.bagel.unified import Tokenizer

_PADDING = 500  # token places that cost about as much as one more forward pass
_CACHED_TEXTS = 50_000

Row = tuple[Encoded, np.ndarray | None]  # an encoded example and the noise of its targets
NoiseLevels = Literal["uniform", "logit_normal"]


class ExamplePacker:
    """Examples to packed batches for one BAGEL with its VAE and tokenizer.

    Args:
        think_system: the system prompt of think mode.
        image_size: height and width in pixels of all pictures.
        noise_levels: how t is drawn before the shift: "logit_normal" (BAGEL) or "uniform".

    Attributes:
        text_dropout: share of the examples with a target that lose their text (for guidance).
    """

    def __init__(
        self,
        bagel: Bagel,
        vae: nn.Module,
        tokenizer: Tokenizer,
        think_system: str,
        image_size: int,
        noise_levels: NoiseLevels,
    ) -> None:
        self.bagel = bagel
        self.vae = vae
        self.tokenizer = tokenizer
        self.think_system = think_system
        self.image_size = image_size
        self.noise_levels = noise_levels
        self.text_dropout = 0.0
        self._texts: dict[tuple[object, ...], Encoded] = {}

    def pack(self, examples: Sequence[Example]) -> list[PackedBatch]:
        """Examples to a few packed batches, each of rows of like length. All draws come from `Example.seed`."""
        targets = [i for i, example in enumerate(examples) if example.target is not None]
        generators = [np.random.default_rng(example.seed) for example in examples]
        clean = self._latents([examples[i] for i in targets], [generators[i] for i in targets])
        latents = dict(zip(targets, clean, strict=True))
        rows: list[Row] = []
        for i, (example, generator) in enumerate(zip(examples, generators, strict=True)):
            row = self._encoded(example, generator)
            noise = None
            if example.target is not None:
                draws = example.noise_draws
                row = replace(row, latents=(latents[i],) * draws).with_noise_levels(self._levels(draws, generator))
                noise = generator.standard_normal((draws * len(latents[i]), latents[i].shape[1]), np.float32)
            rows.append((row, noise))
        return [self._pack(bucket) for bucket in _buckets(rows)]

    def _pack(self, rows: Sequence[Row]) -> PackedBatch:
        batch = pack([[row] for row, _ in rows], self.bagel.config)
        if batch.clean_BGC.shape[1]:
            noise = np.zeros(batch.clean_BGC.shape, np.float32)
            for i, (_, drawn) in enumerate(rows):
                if drawn is not None:
                    noise[i, : len(drawn)] = drawn
            batch.noise_BGC = torch.from_numpy(noise)
        return batch

    def _levels(self, draws: int, generator: np.random.Generator) -> np.ndarray:
        """Pre-sigmoid noise levels; the sigmoid of a logistic draw is uniform."""
        if self.noise_levels == "logit_normal":
            return generator.standard_normal(draws, np.float32)
        return generator.logistic(size=draws).astype(np.float32)

    @torch.no_grad()
    def _latents(self, examples: Sequence[Example], generators: Sequence[np.random.Generator]) -> list[np.ndarray]:
        """Clean latent tokens [h*w, C] of every target, sampled from the VAE's posterior."""
        if not examples:
            return []
        images = pixels([example.target for example in examples if example.target is not None]).to(
            self.bagel.vae2llm.weight.device
        )
        side = images.shape[-1] // int(self.vae.downsample)  # type: ignore[arg-type]
        channels = self.bagel.config.latent_channels
        noise = np.stack([g.standard_normal((channels, side, side), np.float32) for g in generators])
        latents = self.vae.encode(images, torch.from_numpy(noise).to(self.bagel.vae2llm.weight.device)).float()  # type: ignore[operator]
        return [self._tokens(latent) for latent in latents]

    def _tokens(self, latent_CHW: Tensor) -> np.ndarray:
        return patchify(latent_CHW, self.bagel.config.latent_patch_size).cpu().numpy()

    def _encoded(self, example: Example, generator: np.random.Generator) -> Encoded:
        """The example's text layout, cached; images are put in afterwards."""
        dropped = self.text_dropout > 0 and generator.random() < self.text_dropout
        prompt, thought = ("", None) if dropped and example.target is not None else (example.prompt, example.thought)
        draws = example.noise_draws if example.target is not None else 0
        key = (prompt, thought, example.answer, example.learn_thought, draws, len(example.images))
        found = self._texts.get(key)
        if found is None:
            segments = self._segments(prompt, thought, len(example.images), example.learn_thought)
            if example.answer is not None:
                segments.append(Text(self.tokenizer.encode(example.answer), loss=True))
            segments += [VaeImage(self._latent_grid, noised=True)] * draws
            found = encode(segments, self.bagel.config)
            if len(self._texts) < _CACHED_TEXTS:
                self._texts[key] = found
        if example.images:
            found = replace(found, vit_patches=tuple(self._patches(image) for image in example.images))
        return found

    def _segments(self, prompt: str, thought: str | None, images: int, learn_thought: bool) -> list[Segment]:
        segments: list[Segment] = [VitImage(self._vit_grid)] * images
        if thought is not None:
            segments.append(Text(self.tokenizer.encode(self.think_system)))
        segments.append(Text(self.tokenizer.encode(prompt)))
        if thought is not None:
            segments.append(Text(self.tokenizer.encode(thought), loss=learn_thought))
        return segments

    # --- layout --------------------------------------------------------------------------------------------------

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


def supervised_loss(bagel: Bagel, batch: Sequence[PackedBatch]) -> SupervisedLoss:
    """Cross-entropy and velocity error (BAGEL's two objectives), summed over the packed batches."""
    zero = torch.zeros((), device=bagel.vae2llm.weight.device)
    ce, mse, text, latent = zero, zero, 0, 0
    for part in batch:
        out = bagel(part)
        ce, text = ce + out.ce.sum(), text + len(out.ce)
        mse, latent = mse + out.mse.sum(), latent + len(out.mse)
    return SupervisedLoss(ce, zero + text, mse, zero + latent)


def token_counts(batch: Sequence[PackedBatch]) -> tuple[int, int]:
    """Supervised text tokens and noised latent tokens."""
    return sum(len(part.ce_index) for part in batch), sum(len(part.mse_index) for part in batch)


def pixels(images: Sequence[np.ndarray]) -> Tensor:
    """uint8 [H, W, 3] each -> float32 [B, 3, H, W] in [-1, 1]."""
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 127.5 - 1


def _buckets(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of like length together: padding costs time, but so does every further forward pass.

    Rows with the same number of latent tokens are sorted by length; a bucket is closed when one more row would leave
    it with more than `_PADDING` empty places.
    """
    ordered = sorted(rows, key=lambda row: (row[0].gen.shape[1], row[0].und.shape[1]))
    found: list[list[Row]] = []
    latents = padding = 0
    for row in ordered:
        text = row[0].und.shape[1]
        if found and row[0].gen.shape[1] == latents:
            stretched = padding + len(found[-1]) * (text - found[-1][-1][0].und.shape[1])
            if stretched <= _PADDING:
                found[-1].append(row)
                padding = stretched
                continue
        found.append([row])
        latents, padding = row[0].gen.shape[1], 0
    return found
