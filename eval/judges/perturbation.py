"""Changes of an image that should change no verdict: JPEG, and a resizing there and back."""

from __future__ import annotations

import io
from dataclasses import replace

from uni_train.data_gen.reading_limits import open_image, rgb
from uni_train.eval.benchmark import Sample
from uni_train.eval.images import bytes_of

CHANGES = ("jpeg", "resize")
QUALITY = 75
SHRUNK = 0.75  # of both sides


def perturbed(sample: Sample, change: str) -> Sample:
    """The sample with all of its own images changed; those of its case stay. change: one of CHANGES."""
    parts = tuple(part if isinstance(part, str) else _changed(bytes_of(part), change) for part in sample.parts)
    return replace(sample, parts=parts)


def _changed(image: bytes, change: str) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    with open_image(image, "an image that is judged") as opened:
        pixels = Image.fromarray(rgb(opened))
    if change == "jpeg":
        pixels.save(buffer, format="JPEG", quality=QUALITY)
        return buffer.getvalue()
    width, height = (max(1, round(side * SHRUNK)) for side in pixels.size)
    small = pixels.resize((width, height), Image.Resampling.BICUBIC)
    small.resize(pixels.size, Image.Resampling.BICUBIC).save(buffer, format="PNG")
    return buffer.getvalue()
