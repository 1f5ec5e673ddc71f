"""Images from outside and as bytes: files and any common format in, PNG out, the data URLs of JSON."""

from __future__ import annotations

import base64
import binascii
import io
import re
from pathlib import Path

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import PIXELS, Unreadable, open_image, reason, rgb

MOST_PIXELS = PIXELS
"""Larger images (more than 8192 x 8192) are refused: they would be shrunk to a megapixel anyway."""
_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,(?P<data>.*)", re.DOTALL | re.IGNORECASE)


def encode_png(image: np.ndarray) -> bytes:
    """uint8 [H, W, 3] or [H, W] -> PNG bytes (lossless, no timestamps: equal images give equal bytes)."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def decode_png(data: bytes) -> np.ndarray:
    """PNG bytes of our own -> uint8 [H, W, 3]."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def decode_picture(data: bytes, where: str) -> np.ndarray:
    """An encoded image as uint8 [H, W, 3], transparency on white.

    Raises:
        UserError: no image, a damaged or a far too large one; `where` names it.
    """
    try:
        with open_image(data, where) as image:
            return rgb(image)
    except Unreadable as error:
        raise UserError(str(error), "Give a PNG, JPEG or WebP file of fewer pixels.") from None


FRAMES = 8
"""Frames that stand for a video."""


def taken_frames(count: int) -> list[int]:
    """Numbers of the `FRAMES` that are taken of `count` >= 2: evenly spaced, without the first, which is the input. The
    last is among them, as it is the result."""
    taken = min(FRAMES, count - 1)
    return [round((number + 1) * (count - 1) / taken) for number in range(taken)]


_KINDS = ((b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))


def data_url(image: bytes) -> str:
    """An encoded image as the text that stands for it in JSON; what is none of JPEG, GIF and WebP is called a PNG."""
    kind = next((kind for start, kind in _KINDS if image.startswith(start)), "png")
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def decode_data_url(url: str, where: str) -> bytes:
    """The bytes in a data URL. Raises UserError, naming `where`, for anything else."""
    match = _DATA_URL.fullmatch(url.strip())
    if match is None:
        raise UserError(f"{where} is no data URL", "Give data:image/png;base64,...; nothing is fetched from elsewhere.")
    try:
        return base64.b64decode(match["data"], validate=True)
    except (binascii.Error, ValueError):
        raise UserError(f"{where} is damaged: no valid base64", "Send it again.") from None


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
        side = int(MOST_PIXELS**0.5)
        message = f"{where}: the image is too large ({width} x {height} pixels)"
        raise UserError(message, f"Shrink it to at most {side} x {side} pixels.")
