"""Images from outside: reading files, and the two resizes that BAGEL puts input images through.

The released inference code resizes every input image with `VAE_TRANSFORM`, then hands the result to the VAE and,
resized once more with `VIT_TRANSFORM`, to the ViT; also where only the ViT looks (understanding). Sides become
multiples of a stride, the aspect ratio is kept up to that, small images are enlarged: an image of 1 x 1 pixels
becomes 512 x 512.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uni_train.data_gen.reading_limits import PIXELS, Unreadable, open_image, reason
from uni_train.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

MOST_PIXELS = PIXELS
"""Larger images (more than 8192 x 8192) are refused: they would be shrunk to a megapixel anyway."""


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


def read_image(path: Path) -> np.ndarray:
    """An image file as uint8 [H, W, 3]; transparency is laid on white, as in the released code.

    Raises:
        UserError: the file is missing, no image, damaged, or has more than `MOST_PIXELS` pixels.
    """
    try:
        with open_image(path, path) as image:
            _check_size(image.height, image.width, str(path))
            return rgb(image)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file", "Check the path of the image.") from None
    except Unreadable as error:
        raise UserError(str(error), "Give a PNG, JPEG or WebP file.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({reason(error)})", "Copy the file again.") from None


def rgb(image: Image.Image) -> np.ndarray:
    """A PIL image as uint8 [H, W, 3], transparent parts on white."""
    from PIL import Image

    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        seen = image.convert("RGBA")
        white = Image.new("RGB", seen.size, (255, 255, 255))
        white.paste(seen, mask=seen.getchannel("A"))
        image = white
    return np.asarray(image.convert("RGB"))


def check_image(image: np.ndarray, where: str) -> None:
    """Raises UserError, naming `where`, unless the array is uint8 [H, W, 3] with 1 .. MOST_PIXELS pixels."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise UserError(
            f"{where}: an image must be uint8 [height, width, 3], got {image.dtype} {list(image.shape)}",
            "Convert it to RGB with values from 0 to 255.",
        )
    _check_size(image.shape[0], image.shape[1], where)


def _check_size(height: int, width: int, where: str) -> None:
    if height * width > MOST_PIXELS:
        raise _too_large(where, f"{width} x {height} pixels")


def _too_large(where: str, how: str) -> UserError:
    side = int(MOST_PIXELS**0.5)
    return UserError(f"{where}: the image is too large ({how})", f"Shrink it to at most {side} x {side} pixels.")
