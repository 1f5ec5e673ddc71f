"""The two resizes that BAGEL puts input images through.

The released inference code resizes every input image with `VAE_TRANSFORM` for the VAE. It resizes the result again with
`VIT_TRANSFORM` for the ViT; also where only the ViT looks (understanding). Sides become multiples of a stride, the
aspect ratio is kept up to that, small images are enlarged: an image of 1 x 1 pixels becomes 512 x 512.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
        height, width = self.target_size(*image.shape[:2])
        if (height, width) == image.shape[:2]:
            return image
        from PIL import Image

        return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))

    def _scaled(self, height: int, width: int, scale: float) -> tuple[int, int]:
        return self._multiple(round(height * scale)), self._multiple(round(width * scale))

    def _multiple(self, side: int) -> int:
        return max(self.stride, round(side / self.stride) * self.stride)


VAE_TRANSFORM = ImageTransform(max_size=1024, min_size=512, stride=16)
VIT_TRANSFORM = ImageTransform(max_size=980, min_size=224, stride=14)
