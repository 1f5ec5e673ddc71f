"""A pipeline of diffusers as a UnifiedModel: it draws, and writes no text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from uni_train.config.schema import SamplingConfig
from uni_train.core.errors import UserError
from uni_train.core.reading_limits import reason
from uni_train.core.seeds import derive_seed
from uni_train.models.base import ImageGenerator, OnStep, Request, SkillMissing, Trainable, UnifiedModel
from uni_train.models.batches import check_markers, check_requests, markers_of
from uni_train.models.diffusers.classes import TRANSFORMERS
from uni_train.models.diffusers.examples import with_thought
from uni_train.models.diffusers.interface import Interface
from uni_train.models.diffusers.step_cache import HINT, first_block_cache

_NOT_TRAINED = f"be trained here, only {', '.join(TRANSFORMERS)} with a flow-matching Euler scheduler can"


class DiffusersModel(ImageGenerator):
    """A pipeline, asked in batches where requests have words alone.

    An image depends on its batch only by rounding: each request has a generator of its own.

    Args:
        pipeline: the diffusers pipeline; its modules become those of this model.
        takes: how its class is called.

    Attributes:
        source: the folder that it came from.
    """

    family = "diffusers"
    source: Path

    def __init__(self, name: str, pipeline: Any, takes: Interface, sampling: SamplingConfig) -> None:
        super().__init__()
        self.name = name
        self.pipeline = pipeline
        self.takes = takes
        self.sampling = sampling
        pipeline.set_progress_bar_config(disable=True)
        if sampling.first_block_cache is not None and not hasattr(self._transformer, "enable_cache"):
            raise UserError(f"diffusers caches no steps of {takes.name}", HINT)
        logging.getLogger("diffusers.pipelines").setLevel(logging.ERROR)  # such as what CLIP cuts off of each prompt
        self.markers = markers_of(*pipeline.components.values())
        for part, module in pipeline.components.items():
            if isinstance(module, nn.Module):
                self.add_module(part, module.requires_grad_(False))

    # --- asking --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        """Images by the pipeline; a thought is read behind the prompt.

        Requests with images are drawn one at a time, others in batches of equal size. With a cache of steps, all are
        drawn one at a time.

        Raises:
            SkillMissing: images for a pipeline that takes none or one, or none for one that edits. UserError: an
                empty prompt, one with a marker, or a request that the pipeline refuses.
        """
        check_requests(requests)
        alone = self.sampling.first_block_cache is not None
        batches: dict[object, list[int]] = {}
        for row, request in enumerate(requests):
            self._check(request)
            batches.setdefault(row if alone or request.images else (request.size,), []).append(row)
        images: dict[int, np.ndarray] = {}
        for rows in batches.values():
            images |= zip(rows, self._call([requests[row] for row in rows], on_step), strict=True)
        return [images[row] for row in range(len(requests))]

    def missing(self, kind: type[UnifiedModel]) -> SkillMissing:
        """By the name of the pipeline's class."""
        return SkillMissing(self.takes.name, _NOT_TRAINED if issubclass(kind, Trainable) else kind.skill)

    # --- inside --------------------------------------------------------------------------------------------------

    @property
    def _transformer(self) -> Any:
        """None: the pipeline draws by something else."""
        return getattr(self.pipeline, "transformer", None)

    def _check(self, request: Request) -> None:
        """Raises SkillMissing for a request with too few or too many images, UserError for one with a marker."""
        check_markers(full_prompt(request), self.markers, f"request {request.id}: its prompt")
        if request.images and self.takes.image is None:
            raise SkillMissing(self.takes.name, "draw from images")
        if not request.images and self.takes.needs_image:
            raise SkillMissing(self.takes.name, "draw without an image")
        if len(request.images) > 1 and not self.takes.several:
            raise SkillMissing(self.takes.name, "draw from several images")

    def _call(self, requests: Sequence[Request], on_step: OnStep | None) -> list[np.ndarray]:
        """Images of alike requests; one at a time where the pipeline refuses the batch."""
        try:
            images = self._run(requests, on_step).images
        except UserError:
            if len(requests) > 1:
                return [image for request in requests for image in self._call([request], on_step)]
            raise
        return [self._drawn(request, image) for request, image in zip(requests, images, strict=True)]

    def _drawn(self, request: Request, image: Any) -> np.ndarray:
        """An image of the pipeline, uint8 [H, W, 3]. Raises UserError: it has another size than was asked."""
        drawn = np.asarray(image.convert("RGB"))
        if request.size not in (None, drawn.shape[:2]):
            wrong = f"request {request.id}: {self.takes.name} cannot draw {_by(request.size)} pixels"
            raise UserError(wrong, f"The nearest that it draws is {_by(drawn.shape[:2])} (height x width).")
        return drawn

    def _run(self, requests: Sequence[Request], on_step: OnStep | None) -> Any:
        """The pipeline's output. Raises UserError: it refuses the requests."""
        try:
            with first_block_cache(self._transformer, self.sampling.first_block_cache):
                return self.pipeline(**self._arguments(requests, on_step))
        except (ValueError, TypeError, NotImplementedError) as error:
            message = f"request {requests[0].id}: {self.takes.name} refuses it ({reason(error)})"
            hint = "Change its prompt, images or size"
            cached = ", or leave first_block_cache out" if self.sampling.first_block_cache is not None else ""
            raise UserError(message, f"{hint}{cached}.") from error

    def _arguments(self, requests: Sequence[Request], on_step: OnStep | None) -> dict[str, Any]:
        from PIL import Image

        takes, first, parameters = self.takes, requests[0], self.takes.parameters
        values = takes.arguments(self.sampling, bool(first.images))
        values["prompt"] = [full_prompt(request) for request in requests]
        values["generator"] = [torch.Generator().manual_seed(derive_seed(request.seed, "draw")) for request in requests]
        if takes.guidance == "true_cfg_scale" and values["true_cfg_scale"] > 1:
            values["negative_prompt"] = [" "] * len(requests)  # without one there is no guidance
        if first.images and takes.image is not None:
            shown = [Image.fromarray(image) for image in first.images]
            values[takes.image] = shown if takes.several else shown[0]
        if first.size is not None:
            height, width = first.size
            sizes = {"height": height, "width": width, "max_area": height * width}
            values |= {name: value for name, value in sizes.items() if name in parameters}
        if on_step is not None and "callback_on_step_end" in parameters:

            def step_done(pipeline: Any, step: int, t: object, tensors: dict[str, Any]) -> dict[str, Any]:
                on_step(step + 1, pipeline.num_timesteps)
                return tensors

            values["callback_on_step_end"] = step_done
        return values


def full_prompt(request: Request) -> str:
    """The prompt, and behind it the thought."""
    return request.prompt if request.thought is None else with_thought(request.prompt, request.thought)


def _by(size: tuple[int, ...] | None) -> str:
    return " x ".join(map(str, size or ()))
