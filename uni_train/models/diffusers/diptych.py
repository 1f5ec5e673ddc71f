"""FLUX.1-Fill asked to edit as ICEdit is (Zhang et al. 2025, arXiv 2504.20690): the right half of a diptych is filled.

The image, 512 pixels wide, lies in both halves of a canvas, and the right one is drawn anew. ICEdit's weights are a
LoRA that is merged; without it the pipeline edits by its prompt alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uni_train.models.base import OnStep, Request
from uni_train.models.diffusers.unified import DiffusersModel

WIDTH = 512
"""Pixels of a half, whatever the image's own width: ICEdit was trained on no other."""
_PROMPT = (
    "A diptych with two side-by-side images of the same scene. "
    "On the right, the scene is exactly the same as on the left but {}"
)


class DiptychModel(DiffusersModel):
    """Draws from one image, which it answers in 512 pixels of width and the nearest height that the pipeline draws."""

    def _arguments(self, requests: Sequence[Request], on_step: OnStep | None) -> dict[str, Any]:
        from PIL import Image

        (request,) = requests
        half = Image.fromarray(request.images[0])
        half = half.resize((WIDTH, max(16, half.height * WIDTH // half.width // 8 * 8)))
        canvas, mask = (Image.new(mode, (2 * WIDTH, half.height)) for mode in ("RGB", "L"))
        canvas.paste(half, (0, 0))
        canvas.paste(half, (WIDTH, 0))
        mask.paste(255, (WIDTH, 0, 2 * WIDTH, half.height))
        images, size = (np.asarray(canvas),), (half.height, 2 * WIDTH)
        whole = replace(request, prompt=_PROMPT.format(request.prompt), images=images, size=size)
        return {**super()._arguments([whole], on_step), "mask_image": mask}

    def _drawn(self, request: Request, image: Any) -> np.ndarray:
        return super()._drawn(request, image.crop((WIDTH, 0, 2 * WIDTH, image.height)))
