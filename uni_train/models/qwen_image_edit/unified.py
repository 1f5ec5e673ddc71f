"""Qwen-Image-Edit as a UnifiedModel: its Qwen2.5-VL reads, thinks and answers, its transformer draws.

A request shows one image, in the Plus form (2509, 2511) several, or none: then it is drawn as by Qwen-Image, from which
these models were trained. Images have `Request.size`, else the aspect ratio of the last image.

Shapes: B rows, G latent tokens of the largest image of a batch, C numbers a token (64); L text tokens, D their width.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from uni_train.config.schema import EditingConfig, SamplingConfig
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.flow.euler import euler_step
from uni_train.flow.schedule import DynamicShift, Schedule
from uni_train.models.base import Example, OnStep, Request, SkillMissing, TextGenerator
from uni_train.models.batches import check_requests, markers_of
from uni_train.models.diffusers.classes import QWEN_IMAGE
from uni_train.models.diffusers.condition import FlowCondition, Words
from uni_train.models.diffusers.examples import Edit, with_thought
from uni_train.models.diffusers.flow_matching import FlowMatchingModel
from uni_train.models.diffusers.latents import fit_area, pixels, resize
from uni_train.models.diffusers.step_cache import first_block_cache
from uni_train.models.qwen_image_edit.reading import (
    ANSWER_SYSTEM,
    END,
    chat,
    draw_chat,
    hidden_states,
    template_tokens,
    user_turn,
)
from uni_train.models.writing import write

_LOOK_TOKEN = 28  # pixels a side of what the Qwen2.5-VL takes for one token
_LONGEST = 200  # times the shorter side, in what the Qwen2.5-VL looks at


class QwenImageEdit(FlowMatchingModel, TextGenerator):
    """The parts of a diffusers pipeline, drawing in batches.

    A request's image depends on its batch only by rounding (float32: a latent by at most 1e-4 of the largest).

    Args:
        transformer, text_encoder, vae: QwenImageTransformer2DModel, Qwen2_5_VLForConditionalGeneration,
            AutoencoderKLQwenImage. The transformer alone is trained.
        processor: a `reading.Processor`; for counting tokens anything with its `count`.
        shift: of the noise levels when drawing.
        editing: sizes of shown images, the negative prompt, and which form (Plus or not) it is.
        side: images have the area of a square of so many pixels.
    """

    family = "qwen_image_edit"
    shows_images = True
    chat_tokens = 20  # those of the system prompt are dropped
    # diffusers' and transformers' modules, whose methods nn.Module does not have.
    text_encoder: Any
    vae: Any

    def __init__(
        self,
        name: str,
        transformer: nn.Module,
        text_encoder: nn.Module,
        vae: nn.Module,
        processor: Any,
        shift: DynamicShift,
        sampling: SamplingConfig,
        editing: EditingConfig,
        side: int,
    ) -> None:
        super().__init__()
        self.name = name
        self.transformer = transformer
        self.text_encoder = text_encoder.requires_grad_(False)
        self.vae = vae.requires_grad_(False)
        self.processor = processor
        self.markers = markers_of(getattr(processor, "tokenizer", None))
        self.shift = shift
        self.sampling = sampling
        self.editing = editing
        self._set_up(QWEN_IMAGE, vae, side, editing.negative_prompt)

    @property
    def guidance(self) -> float:
        return self.sampling.edit_text_scale

    # --- asking --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def think(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: OnStep | None = None
    ) -> list[str]:
        """What the Qwen2.5-VL says of the image and of the change, in the chat that images are drawn under."""
        chats = [self._draw_chat(request.prompt, len(request.images)) for request in requests]
        return self._write(requests, chats, temperature, on_step)

    @torch.no_grad()
    def answer(self, requests: Sequence[Request], *, think: bool = False, on_step: OnStep | None = None) -> list[str]:
        """A reply to images and prompt. It has no mode of thinking before it answers."""
        if think:
            raise SkillMissing(self.name, "think before it answers")
        turns = [user_turn(request.prompt, len(request.images), self.editing.plus) for request in requests]
        return self._write(requests, [chat(ANSWER_SYSTEM, turn) for turn in turns], None, on_step)

    @torch.no_grad()
    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        """Images by Euler's method from each request's own noise; a thought is read as part of the prompt."""
        if not requests:
            return []
        if self.sampling.first_block_cache is not None and len(requests) > 1:
            return [image for request in requests for image in self.draw([request], on_step)]
        condition = self.encode(requests)
        x = self.noise(requests)
        schedule = Schedule.together([self.schedule(condition, row) for row in range(len(requests))]).to(self.device)
        with first_block_cache(self.transformer, self.sampling.first_block_cache):
            for step in range(schedule.steps):
                t, t_next = schedule.step(step)
                x = euler_step(x, self.velocity(x, t, condition), t, t_next)
                if on_step is not None:
                    on_step(step + 1, self.sampling.steps)
        return self.decode(x, condition)

    # --- hooks for reinforcement learning ------------------------------------------------------------------------

    @torch.no_grad()
    def encode(self, requests: Sequence[Request]) -> FlowCondition:
        """Read each request once: its chat, the chat with the negative prompt (if guided), its images as latents."""
        self._check(requests)
        prompts = [r.prompt if r.thought is None else with_thought(r.prompt, r.thought) for r in requests]
        images = [self._looked(request.images) for request in requests]
        words = self._states(prompts, images)
        empty = self._states([self.editing.negative_prompt] * len(images), images) if self.guided else None
        shown = [[pixels(image) for image in self._shown(request.images)] for request in requests]
        sizes = [self.picture_size(request) for request in requests]
        pairs = zip(sizes, requests, strict=True)
        shapes = [(self.latents.grid(size), *self.shown_grids(request.images)) for size, request in pairs]
        return FlowCondition(words, empty, self._encode(shown), shapes, range(len(requests)))

    def schedule(self, condition: FlowCondition, row: int = 0, steps: int | None = None) -> Schedule:
        """The noise levels of one row's image: a larger one has higher levels."""
        h, w = condition.grids[row]
        return self.shift.schedule(self.sampling.steps if steps is None else steps, h * w)

    # --- training ------------------------------------------------------------------------------------------------

    def edits_of(self, example: Example) -> list[Edit]:
        edits = super().edits_of(example)
        for edit in edits:
            self._check_images(edit.images, "an example")
        return edits

    def text_tokens(self, prompt: str, images: Sequence[np.ndarray] = ()) -> int:
        """Tokens of the prompt, and of the images as the Qwen2.5-VL sees them."""
        sizes = [fit_area(self._look_side, *image.shape[:2]) for image in images]
        return self.processor.count(prompt) + sum(round(h / _LOOK_TOKEN) * round(w / _LOOK_TOKEN) for h, w in sizes)

    def _thinned(self, edit: Edit, random_: random.Random) -> tuple[str, list[np.ndarray], Sequence[np.ndarray]]:
        drop = self.dropout
        prompt = self.editing.negative_prompt if random_.random() < drop.text else edit.prompt
        seen = self._looked(() if random_.random() < drop.vit else edit.images)
        shown = () if random_.random() < drop.vae else edit.images
        return draw_chat(prompt, len(seen), self.editing.plus, edits=bool(edit.images)), seen, shown

    # --- requests and images -------------------------------------------------------------------------------------

    def _write(
        self, requests: Sequence[Request], chats: Sequence[str], temperature: float | None, on_step: OnStep | None
    ) -> list[str]:
        if not requests:
            return []
        self._check(requests)
        images = [image for request in requests for image in self._looked(request.images)]
        tokenizer = self.processor.tokenizer
        return write(
            self.text_encoder.generate,
            tokenizer,
            self.processor(chats, images, padding_side="left").to(next(self.text_encoder.parameters()).device),
            end=tokenizer.convert_tokens_to_ids(END),
            max_tokens=self.sampling.max_think_tokens,
            temperature=self.sampling.temperature if temperature is None else temperature,
            seeds=[derive_seed(request.seed, "write") for request in requests],
            on_step=on_step,
        )

    def _states(self, prompts: Sequence[str], images: Sequence[Sequence[np.ndarray]]) -> list[Words]:
        """Hidden states of one chat each; `images` as they are looked at."""
        texts = [self._draw_chat(prompt, len(own)) for prompt, own in zip(prompts, images, strict=True)]
        return self._words(self._inputs(texts, [image for own in images for image in own]))

    def _draw_chat(self, prompt: str, images: int) -> str:
        return draw_chat(prompt, images, self.editing.plus, edits=images > 0)

    def _inputs(self, texts: Sequence[str], looked: Sequence[np.ndarray]) -> dict[str, Any]:
        starts = torch.tensor([template_tokens(text) for text in texts])
        return {**self.processor(texts, list(looked)), "template_tokens": starts}

    def _words(self, inputs: dict[str, Any]) -> list[Words]:
        states = hidden_states(self.text_encoder, inputs, self.editing.positions)
        return [{"encoder_hidden_states": state} for state in states]

    def _looked(self, images: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Images as the Qwen2.5-VL is given them."""
        return [resize(image, fit_area(self._look_side, *image.shape[:2])) for image in images]

    @property
    def _look_side(self) -> int:
        return self.editing.look_size if self.editing.plus else self.side

    @property
    def _shown_side(self) -> int:
        return self.editing.latent_size if self.editing.plus else self.side

    def _check(self, requests: Sequence[Request]) -> None:
        """Raises UserError for the first request that cannot be meant."""
        check_requests(requests, self.markers)
        for request in requests:
            self._check_images(request.images, f"request {request.id}")
            if request.size is not None:
                self.check_size(*request.size, f"request {request.id}")

    def _check_images(self, images: Sequence[np.ndarray], what: str) -> None:
        if len(images) > 1 and not self.editing.plus:
            raise UserError(
                f"{what} shows {len(images)} images, but {self.name} takes one",
                "Show one, or use the Plus form: model=qwen_image_edit_2509 or model=qwen_image_edit_2511.",
            )
        for height, width in (image.shape[:2] for image in images):
            sides = fit_area(self._look_side, height, width)
            if max(sides) > _LONGEST * min(sides):
                raise UserError(
                    f"{what} shows an image of {height} x {width} pixels (height x width), which is too long for "
                    f"{self.name}",
                    f"Its processor takes sides of at most {_LONGEST} to 1: crop or pad the image.",
                )
