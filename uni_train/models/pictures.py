"""Images as bytes: PNG out, any common format in, and the data URLs in which they travel through JSON."""

from __future__ import annotations

import base64
import binascii
import io
import re

import numpy as np

from uni_train.data_gen.reading_limits import Unreadable, open_image
from uni_train.errors import UserError

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
    from uni_train.models.bagel.images import rgb

    try:
        with open_image(data, where) as image:
            return rgb(image)
    except Unreadable as error:
        raise UserError(str(error), "Give a PNG, JPEG or WebP file of fewer pixels.") from None


_KINDS = ((b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))


def data_url(image: bytes) -> str:
    """An encoded image as the text that stands for it in JSON; what is none of JPEG, GIF and WebP is called a PNG."""
    kind = next((kind for start, kind in _KINDS if image.startswith(start)), "png")
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def decode_base64(text: str, where: str) -> bytes:
    """Raises UserError, naming `where`, for what is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UserError(f"{where} is damaged: no valid base64", "Send it again.") from None


def decode_data_url(url: str, where: str) -> bytes:
    """The bytes in a data URL. Raises UserError, naming `where`, for anything else."""
    match = _DATA_URL.fullmatch(url.strip())
    if match is None:
        raise UserError(f"{where} is no data URL", "Give data:image/png;base64,...; nothing is fetched from elsewhere.")
    return decode_base64(match["data"], where)
