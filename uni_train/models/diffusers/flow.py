"""Pipelines of a flow-matching transformer, trained: SFT on images with captions, and Flow-GRPO.

Text encoders and VAE stay as they are. Guidance as a number (FLUX) is 1 in SFT, and that of sampling elsewhere.

Shapes: B rows, G latent tokens of the largest image of a batch, C numbers a token.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.config.schema import SamplingConfig
from uni_train.data_gen.seeds import derive_seed
from uni_train.errors import UserError
from uni_train.flow.objective import interpolate, velocity_target
from uni_train.flow.schedule import DynamicShift, Schedule, train_timestep
from uni_train.models.base import Example, OnStep, Request, SupervisedLoss
from uni_train.models.batches import check_requests
from uni_train.models.diffusers.classes import TRANSFORMERS, Words
from uni_train.models.diffusers.interface import Interface
from uni_train.models.diffusers.unified import DiffusersModel, full_prompt
from uni_train.models.qwen_image_edit.condition import padded
from uni_train.models.qwen_image_edit.examples import copies_of, draws, noise_of
from uni_train.models.qwen_image_edit.latents import Grid, fit_area, pack, pixels, resize

_LAYER = r"transformer\.(single_)?transformer_blocks\.\d+\."
_IMAGE_STREAM = r"(attn2?\.(to_[qkv]|to_out\.0)|(ff|img_mlp)\.net\.(0\.proj|2)|proj_mlp|proj_out)"
_TEXT_STREAM = r"(attn\.(add_[qkv]_proj|to_add_out)|(ff_context|txt_mlp)\.net\.(0\.proj|2))"

ADAPTER_LAYERS = {
    "generation": _LAYER + _IMAGE_STREAM,
    "understanding": _LAYER + _TEXT_STREAM,
    "both": f"{_LAYER}({_IMAGE_STREAM}|{_TEXT_STREAM})",
}
"""The transformers have two streams: of images, and of the text that they draw by."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowCondition:
    """R readings, and B rows that are drawn under them.

    Attributes:
        words: text inputs of each reading.
        empty: those of the negative prompt; None: no guidance by it.
        sizes: grid of each reading's image.
        rows: which reading each row has.
    """

    words: Sequence[Words]
    empty: Words | None
    sizes: Sequence[Grid]
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def grids(self) -> list[Grid]:
        """Of each row's image."""
        return [self.sizes[reading] for reading in self.rows]

    def select(self, rows: Sequence[int] | Tensor) -> FlowCondition:
        """The given rows, in that order; nothing is copied but indices."""
        return replace(self, rows=[self.rows[int(row)] for row in rows])

    def repeat(self, times: int) -> FlowCondition:
        """Every row `times` times in a row."""
        return replace(self, rows=[row for row in self.rows for _ in range(times)])

    def alike(self) -> list[list[int]]:
        """Rows of equal grids."""
        rows_of: dict[Grid, list[int]] = defaultdict(list)
        for row, grid in enumerate(self.grids):
            rows_of[grid].append(row)
        return list(rows_of.values())


@dataclass(slots=True)
class FlowBatch:
    """R captioned images and N noised copies of them.

    Attributes:
        prompts: one an image. images: uint8 [3, H, W] each. sizes: their grids.
        rows: which image each copy is of.
        noise: [G, C] of each copy. levels: [N], the noise levels.
    """

    prompts: list[str]
    images: list[Tensor]
    sizes: list[Grid]
    rows: list[int]
    noise: list[Tensor]
    levels: Tensor

    def to(self, device: torch.device) -> FlowBatch:
        """The same on another device."""
        images, noise = ([one.to(device) for one in many] for many in (self.images, self.noise))
        return replace(self, images=images, noise=noise, levels=self.levels.to(device))

    @property
    def tokens(self) -> int:
        """Latent tokens that are learned."""
        return sum(len(one) for one in self.noise)


class FlowModel(DiffusersModel):
    """A pipeline of `classes.TRANSFORMERS`, whose transformer can be trained.

    Args:
        side: images are squares of so many pixels; those that are learned have that area.
    """

    encoder_trained = False
    adapter_layers = ADAPTER_LAYERS
    transformer: Any

    def __init__(self, name: str, pipeline: Any, takes: Interface, sampling: SamplingConfig, side: int) -> None:
        super().__init__(name, pipeline, takes, sampling)
        self.side = side
        self.flow = TRANSFORMERS[takes.name]
        self.adapter_alpha = self.flow.alpha
        self.latents = self.flow.latents(pipeline.vae)
        self.timestep_shift, self.text_dropout = 1.0, 0.0
        self.transformer.requires_grad_(True)
        for key, parameter in self.transformer.transformer_blocks[-1].named_parameters():
            if self.flow.untrained and key.startswith(self.flow.untrained):
                parameter.requires_grad_(False)

    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        return super().draw([replace(one, size=self.picture_size(one)) for one in requests], on_step)

    def picture_size(self, request: Request) -> tuple[int, int]:
        return request.size or (self.side, self.side)

    def check_size(self, height: int, width: int, where: str) -> None:
        stride = self.latents.stride
        if height < stride or width < stride or height % stride or width % stride:
            message = f"{where}: {self.takes.name} cannot draw {height} x {width} pixels (height x width)"
            raise UserError(message, f"Sides are multiples of {stride}.")

    # --- hooks for reinforcement learning ------------------------------------------------------------------------

    @torch.no_grad()
    def encode(self, requests: Sequence[Request]) -> FlowCondition:
        """Read each prompt once, and the negative prompt where there is guidance by it.

        Raises:
            UserError: an empty prompt. SkillMissing: a request with images.
        """
        check_requests(requests)
        for request in requests:
            self._check(request)
        sizes = [self.latents.grid(self.picture_size(request)) for request in requests]
        guided = self.flow.negative is not None and self.sampling.cfg_text_scale > 1
        return self._condition([full_prompt(one) for one in requests], sizes, range(len(requests)), guided)

    def noise(self, requests: Sequence[Request]) -> Tensor:
        """x at t = 1: float32 [B, G, C], as `draw` has it; zero behind smaller images."""
        rows = []
        for request in requests:
            h, w = self.latents.grid(self.picture_size(request))
            generator = torch.Generator().manual_seed(derive_seed(request.seed, "draw"))
            channels = self.latents.channels // 4
            rows.append(pack(torch.randn(1, channels, 2 * h, 2 * w, generator=generator))[0])
        return nn.utils.rnn.pad_sequence(rows, batch_first=True).to(self.device)

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

    def velocity(self, x_t: Tensor, t: Tensor | float, condition: FlowCondition) -> Tensor:
        """Guided velocity noise - clean, float32 [B, G, C]. Rows of equal sizes go through the transformer together."""
        return self._velocity(x_t, t, condition, self.sampling.cfg_text_scale)

    def decode(self, latents: Tensor, condition: FlowCondition | None = None) -> list[np.ndarray]:
        own = self.latents.grid((self.side, self.side))
        return self.latents.decode(latents, condition.grids if condition is not None else [own] * len(latents))

    # --- training ------------------------------------------------------------------------------------------------

    def prepare_training(  # type: ignore[override]
        self,
        *,
        timestep_shift: float,
        text_dropout: float,
        vit_dropout: float = 0.0,
        vae_dropout: float = 0.0,
        activation_checkpointing: bool = False,
    ) -> None:
        """As the base's; there are no input images to leave out."""
        self.timestep_shift, self.text_dropout = timestep_shift, text_dropout
        if activation_checkpointing:
            self.transformer.enable_gradient_checkpointing()
        else:
            self.transformer.disable_gradient_checkpointing()

    def collate(self, examples: Sequence[Example], seed: int) -> FlowBatch:
        """Captioned images and noised copies of them. All draws come from `Example.seed`, none from `seed`.

        Raises:
            UserError: an example that is no captioned image.
        """
        batch = FlowBatch([], [], [], [], [], torch.empty(0))
        logits = []
        for example in examples:
            prompt, image = _captioned(example)
            batch.prompts.append((self.flow.negative or "") if draws(example).random() < self.text_dropout else prompt)
            batch.images.append(pixels(resize(image, fit_area(self.side, *image.shape[:2]))))
            grid = self.latents.grid(batch.images[-1].shape[1:])
            for draw in range(copies_of(example)):
                noise, logit = noise_of(example, 0, draw, (grid[0] * grid[1], self.latents.channels))
                batch.noise.append(noise)
                logits.append(logit)
                batch.rows.append(len(batch.sizes))
            batch.sizes.append(grid)
        batch.levels = train_timestep(torch.stack(logits), self.timestep_shift)
        return batch

    def supervised_loss(self, batch: FlowBatch, passes: int | None = None) -> SupervisedLoss:
        """The rectified-flow loss on the images under their captions, without guidance.

        `passes` of the transformer are made, at least one for each size; those too many count nothing.
        """
        with torch.no_grad():
            condition = self._condition(batch.prompts, batch.sizes, batch.rows, guided=False)
            encoded = self.latents.encode(batch.images)
            clean, _ = padded([encoded[row].to(self.device) for row in batch.rows])
            noise, mask = padded([one.to(self.device) for one in batch.noise])
            t = batch.levels.to(self.device)
            x_t = interpolate(clean, noise, t.view(-1, 1, 1))
        error = (self._velocity(x_t, t, condition, 1.0) - velocity_target(clean, noise)).square().mean(-1)
        total = (error if mask is None else error * mask).sum()
        sizes = condition.alike()
        rows = min(sizes, key=len)
        for _ in range(0 if passes is None else passes - len(sizes)):
            total = total + 0 * self._velocity(x_t[rows], t[rows], condition.select(rows), 1.0).sum()
        none = error.new_zeros(())
        return SupervisedLoss(none, none, total, none + batch.tokens)

    def passes(self, batch: FlowBatch) -> int:
        """Forward passes of the transformer that `supervised_loss` makes: one for each size."""
        return len({batch.sizes[row] for row in batch.rows})

    def token_counts(self, batch: FlowBatch) -> tuple[int, int]:
        """Supervised text tokens (none) and noised latent tokens."""
        return 0, batch.tokens

    def example_tokens(self, example: Example) -> int:
        """Latent tokens of all noised copies of its image. Raises UserError: it is no captioned image."""
        h, w = self.latents.grid(fit_area(self.side, *_captioned(example)[1].shape[:2]))
        return h * w * copies_of(example)

    def describe(self) -> dict[str, Any]:
        return {"transformer": dict(self.transformer.config), "image_size": self.side}

    # --- inside --------------------------------------------------------------------------------------------------

    def _condition(
        self, prompts: Sequence[str], sizes: Sequence[Grid], rows: Sequence[int], guided: bool
    ) -> FlowCondition:
        words = [self.flow.words(self.pipeline, prompt) for prompt in prompts]
        empty = self.flow.words(self.pipeline, self.flow.negative or "") if guided else None
        return FlowCondition(words, empty, sizes, list(rows))

    def _velocity(self, x_t: Tensor, t: Tensor | float, condition: FlowCondition, guidance: float) -> Tensor:
        levels = torch.as_tensor(t, dtype=torch.float32, device=x_t.device).expand(len(condition))
        order: list[int] = []
        parts: list[Tensor] = []
        for rows in condition.alike():
            grid = condition.grids[rows[0]]
            x = x_t[rows, : grid[0] * grid[1]]
            words = [condition.words[condition.rows[row]] for row in rows]
            velocity = self._predict(x, levels[rows], words, grid, guidance)
            if condition.empty is not None:
                other = self._predict(x, levels[rows], [condition.empty] * len(rows), grid, guidance)
                velocity = self.flow.guided(velocity, other, guidance)
            parts.append(nn.functional.pad(velocity, (0, 0, 0, x_t.shape[1] - x.shape[1])))
            order += rows
        return torch.cat(parts)[torch.tensor(order).argsort().to(x_t.device)]

    def _predict(self, x: Tensor, t: Tensor, words: Sequence[Words], grid: Grid, guidance: float) -> Tensor:
        """The transformer's velocity float32 [B, G, C] for rows of equal sizes."""
        dtype = self.transformer.dtype
        inputs: dict[str, Tensor] = {}
        for name in words[0]:
            values = [one[name].to(x.device, dtype) for one in words]
            if name == "encoder_hidden_states":
                inputs[name], mask = padded(values)
                if mask is not None:
                    inputs["encoder_hidden_states_mask"] = mask
            else:
                inputs[name] = torch.stack(values)
        return self.flow.velocity(self.pipeline, x.to(dtype), t, inputs, grid, guidance).float()


def _captioned(example: Example) -> tuple[str, np.ndarray]:
    """Prompt and image. Raises UserError for an example of another kind."""
    prompt, image, shown = example.prompt, example.target, list(example.images)
    if example.turns:
        learned = [turn for turn in example.turns if turn.learn]
        shown = [turn.image for turn in example.turns if turn.image is not None and not turn.learn]
        prompt = "\n".join(turn.text or "" for turn in example.turns if turn.image is None)
        image = learned[0].image if len(learned) == 1 else None
    if image is None or shown or example.answer is not None:
        raise UserError("it is no caption with one image to learn", "Give rows of form=text_to_image.")
    return prompt, image
