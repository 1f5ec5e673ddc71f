"""Pipelines of a flow-matching transformer, trained: SFT on images with captions, and Flow-GRPO.

Guidance as a number (FLUX) is 1 in SFT, and that of sampling elsewhere.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uni_train.config.schema import SamplingConfig
from uni_train.flow.schedule import DynamicShift, Schedule
from uni_train.models.base import OnStep, Request
from uni_train.models.batches import check_requests
from uni_train.models.diffusers.classes import TRANSFORMERS
from uni_train.models.diffusers.condition import FlowCondition, Words
from uni_train.models.diffusers.examples import Edit
from uni_train.models.diffusers.flow_matching import FlowMatchingModel
from uni_train.models.diffusers.interface import Interface
from uni_train.models.diffusers.latents import Grid, pack
from uni_train.models.diffusers.unified import DiffusersModel, full_prompt


class FlowModel(FlowMatchingModel, DiffusersModel):  # type: ignore[misc]
    """A pipeline of `classes.TRANSFORMERS`, whose transformer can be trained.

    Args:
        side: images are squares of so many pixels; those that are learned have that area.
    """

    def __init__(self, name: str, pipeline: Any, takes: Interface, sampling: SamplingConfig, side: int) -> None:
        super().__init__(name, pipeline, takes, sampling)
        flow = TRANSFORMERS[takes.name]
        self._set_up(flow, pipeline.vae, side, flow.negative)

    @property
    def guidance(self) -> float:
        return self.sampling.cfg_text_scale

    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        return super().draw([replace(request, size=self.picture_size(request)) for request in requests], on_step)

    @torch.no_grad()
    def encode(self, requests: Sequence[Request]) -> FlowCondition:
        """Read each prompt once, and the negative prompt where there is guidance by it."""
        check_requests(requests)
        for request in requests:
            self._check(request)
        words = self._words({"prompt": [full_prompt(request) for request in requests]})
        empty = self._words({"prompt": [self.negative]}) * len(words) if self.guided else None
        shapes = [(self.latents.grid(self.picture_size(request)),) for request in requests]
        return FlowCondition(words, empty, self._encode([()] * len(words)), shapes, range(len(words)))

    def schedule(self, condition: FlowCondition, row: int = 0, steps: int | None = None) -> Schedule:
        """The noise levels of the pipeline's scheduler for one row's image."""
        scheduler = copy.deepcopy(self.pipeline.scheduler)
        config, count = scheduler.config, self.sampling.steps if steps is None else steps
        h, w = condition.grids[row]
        values: dict[str, Any] = {"num_inference_steps": count}
        if self.takes.name != "StableDiffusion3Pipeline":
            values = {"sigmas": np.linspace(1.0, 1 / count, count)}
        if config.use_dynamic_shifting:
            names = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
            values["mu"] = DynamicShift(*(config[name] for name in names)).mu(h * w)
        scheduler.set_timesteps(**values)
        return Schedule(scheduler.sigmas.float())

    def text_tokens(self, prompt: str, images: Sequence[np.ndarray] = ()) -> int:
        return self.flow.text_tokens(self.pipeline, prompt)

    def describe(self) -> dict[str, Any]:
        return {"image_size": self.side}

    def _noise(self, grid: Grid, generator: torch.Generator) -> Tensor:
        """As the pipeline's own for this generator."""
        h, w = grid
        return pack(torch.randn(1, self.latents.channels // 4, 2 * h, 2 * w, generator=generator))[0]

    def _inputs(self, texts: Sequence[str], looked: Sequence[np.ndarray]) -> dict[str, Any]:
        return {"prompt": texts}

    def _words(self, inputs: dict[str, Any]) -> list[Words]:
        return [self.flow.words(self.pipeline, prompt) for prompt in inputs["prompt"]]

    def _thinned(self, edit: Edit, random_: random.Random) -> tuple[str, Sequence[np.ndarray], Sequence[np.ndarray]]:
        return (self.negative or "") if random_.random() < self.dropout.text else edit.prompt, (), ()
