"""Images as latent tokens and back: sizes, VAEs, and patches of 2 x 2 latents.

A token stands for 16 x 16 pixels (8 by the VAE, 2 by the patch). Images keep their aspect ratio, up to the rounding of
sides to multiples of 32. They get the area of a square of a given side: 1024 pixels in released checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.models.batches import vae_batches

Grid = tuple[int, int]
"""Rows and columns of latent tokens."""
PATCH = 2
_MULTIPLE = 32  # of the sides of resized images


def fit_area(side: int, height: int, width: int) -> tuple[int, int]:
    """(height, width) of an image of height x width that is resized to about side x side pixels (diffusers' rule)."""
    ratio = width / height
    exact = math.sqrt(side * side * ratio)
    wide, high = (round(length / _MULTIPLE) * _MULTIPLE for length in (exact, exact / ratio))
    return max(high, _MULTIPLE), max(wide, _MULTIPLE)


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """uint8 [H, W, 3] at another (height, width), by Lanczos' filter as in diffusers."""
    if image.shape[:2] == size:
        return image
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.LANCZOS))


def pixels(image: np.ndarray) -> Tensor:
    """uint8 [H, W, 3] -> uint8 [3, H, W]; bytes travel to the device, and no precision setting rounds them."""
    return torch.from_numpy(image.transpose(2, 0, 1).copy())


def pack(latents: Tensor) -> Tensor:
    """[B, C, 2h, 2w] -> tokens [B, h w, 4 C], each with the numbers of one channel together."""
    b, c, h, w = latents.shape
    split = latents.view(b, c, h // PATCH, PATCH, w // PATCH, PATCH).permute(0, 2, 4, 1, 3, 5)
    return split.reshape(b, (h // PATCH) * (w // PATCH), c * PATCH * PATCH)


def unpack(tokens: Tensor, grid: Grid) -> Tensor:
    """The inverse of `pack`."""
    b, _, c = tokens.shape
    split = tokens.view(b, *grid, c // PATCH**2, PATCH, PATCH).permute(0, 3, 1, 4, 2, 5)
    return split.reshape(b, c // PATCH**2, grid[0] * PATCH, grid[1] * PATCH)


def _frames(images: Tensor) -> Tensor:
    """[B, C, H, W] as videos of one frame; on a CPU channels last, in which the VAE's norms are quicker (encoding 16
    images of 128 x 128 by the tiny VAE of tests: 350 ms -> 196 ms)."""
    frames = images.unsqueeze(2)
    return frames.contiguous(memory_format=torch.channels_last_3d) if frames.device.type == "cpu" else frames


class Latents:
    """The Qwen-Image VAE with the statistics by which its latents are normalised.

    Attributes:
        stride: pixels a side of a token. channels: numbers a token.
    """

    def __init__(self, vae: nn.Module) -> None:
        config = vae.config
        self.vae = vae
        self.stride = 2 ** len(config.temperal_downsample) * PATCH  # type: ignore[union-attr, arg-type]
        self.channels = int(config.z_dim) * PATCH**2  # type: ignore[union-attr, arg-type]
        self._mean = torch.tensor(config.latents_mean).view(1, -1, 1, 1)  # type: ignore[union-attr]
        self._std = torch.tensor(config.latents_std).view(1, -1, 1, 1)  # type: ignore[union-attr]

    def grid(self, size: Sequence[int]) -> Grid:
        """Of an image of (height, width)."""
        return size[0] // self.stride, size[1] // self.stride

    @torch.no_grad()
    def encode(self, images: Sequence[Tensor]) -> list[Tensor]:
        """Tokens float32 [h w, C] of images uint8 [3, H, W], the posterior's mode. Equal sizes go together."""
        weight = next(self.vae.parameters())
        tokens: dict[int, Tensor] = {}
        for rows in vae_batches([tuple(image.shape[1:]) for image in images]):
            x = torch.stack([images[row] for row in rows]).to(weight.device).float() / 255 * 2 - 1
            z = self._encoded(x.to(weight.dtype)).float()
            tokens.update(zip(rows, pack((z - self._mean.to(z)) / self._std.to(z)), strict=True))
        return [tokens[row] for row in range(len(images))]

    @torch.no_grad()
    def decode(self, latents: Tensor, grids: Sequence[Grid]) -> list[np.ndarray]:
        """Images uint8 [H, W, 3] of tokens [B, G, C]; a row's grid says how many of its tokens count."""
        weight = next(self.vae.parameters())
        decoded: dict[int, np.ndarray] = {}
        for rows in vae_batches([(h * self.stride, w * self.stride) for h, w in grids]):
            grid = grids[rows[0]]
            z = unpack(latents[rows, : grid[0] * grid[1]].float(), grid)
            z = (z * self._std.to(z) + self._mean.to(z)).to(weight.device, weight.dtype)
            image = self._decoded(z)
            image = (image.float() / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1) * 255
            decoded.update(zip(rows, image.round().to(torch.uint8).cpu().numpy(), strict=True))
        return [decoded[row] for row in range(len(latents))]

    def _encoded(self, x: Tensor) -> Tensor:
        """The mode of the posterior [B, C, h, w] of images [B, 3, H, W]."""
        return self.vae.encode(_frames(x)).latent_dist.mode()[:, :, 0]  # type: ignore[operator]

    def _decoded(self, z: Tensor) -> Tensor:
        """The inverse of `_encoded`."""
        return self.vae.decode(_frames(z), return_dict=False)[0][:, :, 0]  # type: ignore[operator]


class KLLatents(Latents):
    """The same of diffusers' AutoencoderKL."""

    def __init__(self, vae: Any) -> None:
        config = vae.config
        self.vae = vae
        self.stride = 2 ** (len(config.block_out_channels) - 1) * PATCH
        self.channels = int(config.latent_channels) * PATCH**2
        self._mean = torch.tensor(config.shift_factor or 0.0)
        self._std = torch.tensor(1 / config.scaling_factor)

    def _encoded(self, x: Tensor) -> Tensor:
        return self.vae.encode(x).latent_dist.mode()  # type: ignore[operator]

    def _decoded(self, z: Tensor) -> Tensor:
        return self.vae.decode(z, return_dict=False)[0]  # type: ignore[operator]
