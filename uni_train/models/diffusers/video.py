"""A pipeline of diffusers that makes videos (Wan, LTX, CogVideoX): asked for frames, or for the last one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from uni_train.models.base import InterleavedGenerator, OnStep, Request
from uni_train.models.batches import check_requests
from uni_train.models.diffusers.unified import DiffusersModel
from uni_train.models.pictures import taken_frames

_MULTIPLE = 32  # of sides, which all such pipelines take
_AREA = 480 * 832  # pixels of a frame where the pipeline has no size of its own


class VideoModel(DiffusersModel, InterleavedGenerator):
    """One request at a time, with the pipeline's own number of frames."""

    @torch.no_grad()
    def compose(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[list[str | np.ndarray]]:
        """Frames of a video each, evenly spaced (`taken_frames`). Raises as `draw`."""
        check_requests(requests)
        videos: list[list[str | np.ndarray]] = []
        for request in requests:
            self._check(request)
            (frames,) = self._run([request], on_step).frames
            chosen = taken_frames(len(frames)) if len(frames) > 1 else [0]
            videos.append([self._drawn(request, frames[number]) for number in chosen])
        return videos

    @torch.no_grad()
    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        """The last frames."""
        return [np.asarray(frames[-1]) for frames in self.compose(requests, on_step)]

    def _arguments(self, requests: Sequence[Request], on_step: OnStep | None) -> dict[str, Any]:
        """A frame has the shape of the input image, in as many pixels as the pipeline's own frames."""
        values, parameters = super()._arguments(requests, on_step), self.takes.parameters
        (request,) = requests
        if request.images and request.size is None and {"height", "width"} <= parameters.keys():
            height, width = request.images[-1].shape[:2]
            area = (parameters["height"] or 0) * (parameters["width"] or 0) or _AREA
            scale = min(1.0, math.sqrt(area / (height * width)))
            sides = {"height": height, "width": width}
            values |= {name: max(1, round(side * scale / _MULTIPLE)) * _MULTIPLE for name, side in sides.items()}
        return {**values, "output_type": "pil"}
