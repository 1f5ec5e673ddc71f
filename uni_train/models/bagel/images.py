"""Images on their way into BAGEL: its two resizes, patches, and latents.

The released inference code resizes every input image for the VAE. It resizes the result again for the ViT; also where
only the ViT looks (understanding). Sides become multiples of a stride, the aspect ratio is kept up to that, small
images are enlarged: an image of 1 x 1 pixels becomes 512 x 512.

Shapes: B images, H, W pixels, C channels, h, w latents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.models.bagel.positions import patchify
from uni_train.models.batches import vae_batches
from uni_train.models.transfer import upload


@dataclass(frozen=True, slots=True)
class ImageTransform:
    """Resize between a longest and a shortest side (bicubic, antialiased), sides multiples of `stride`.

    The rule of the released code: shrink so that the long side is at most `max_size`, but never so that the short side
    falls below `min_size`; then, in this order, keep to `max_pixels` and to `max_size`.
    """

    max_size: int
    min_size: int
    stride: int
    max_pixels: int = 14 * 14 * 9 * 1024

    def target_size(self, height: int, width: int, images: int = 1) -> tuple[int, int]:
        """(height, width) after the resize; `images` that are shown together share `max_pixels`."""
        scale = min(self.max_size / max(height, width), 1.0)
        size = self._scaled(height, width, max(scale, self.min_size / min(height, width)))
        most = self.max_pixels / images
        if size[0] * size[1] > most:
            size = self._scaled(*size, most / (size[0] * size[1]))
        if max(size) > self.max_size:
            size = self._scaled(*size, self.max_size / max(size))
        return size

    def resize(self, image: np.ndarray) -> np.ndarray:
        """uint8 [H, W, 3] -> uint8 [H', W', 3]; the same array where the size is right already."""
        return resized(image, self.target_size(*image.shape[:2]))

    def _scaled(self, height: int, width: int, scale: float) -> tuple[int, int]:
        return self._multiple(round(height * scale)), self._multiple(round(width * scale))

    def _multiple(self, side: int) -> int:
        return max(self.stride, round(side / self.stride) * self.stride)


def resized(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """uint8 [H, W, 3] to (height, width), bicubic and antialiased; the same array where it has that size."""
    if image.shape[:2] == size:
        return image
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BICUBIC))


def pixels(images: Sequence[np.ndarray]) -> Tensor:
    """uint8 [H, W, 3] each -> float32 [B, 3, H, W] in [-1, 1]."""
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 127.5 - 1


def patches(image: np.ndarray, side: int) -> np.ndarray:
    """uint8 [H, W, 3] -> float32 [patches, side * side * 3] in [-1, 1], as the ViT takes them."""
    return patchify(pixels([image])[0], side).numpy()


def latent_tokens(vae: nn.Module, images: Sequence[np.ndarray], noise: Sequence[Tensor], patch: int) -> list[Tensor]:
    """float32 [tokens, patch * patch * C] of each image, on the VAE's device.

    Images of one size are encoded together; padding to a common size would change their latents.

    Args:
        noise: [C, h, w] of each image, by which its latents are sampled from the VAE's posterior.
    """
    weight = next(vae.parameters())
    tokens: dict[int, Tensor] = {}
    for rows in vae_batches([image.shape[:2] for image in images]):
        x, z = pixels([images[row] for row in rows]), torch.stack([noise[row] for row in rows])
        x, z = (upload(tensor, weight.device).to(weight.dtype) for tensor in (x, z))
        tokens.update(zip(rows, patchify(vae.encode(x, z).float(), patch), strict=True))  # type: ignore[operator]
    return [tokens[row] for row in range(len(images))]
