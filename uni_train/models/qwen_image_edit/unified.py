"""Qwen-Image-Edit as a UnifiedModel: its Qwen2.5-VL reads, thinks and answers, its transformer draws.

A request must show at least one image (this model edits), and the Plus form (2509, 2511) takes several. Images have
`Request.size`, else the aspect ratio of the last image (of the first one, where there is just one).

Shapes: B rows, G latent tokens of the largest image of a batch, C numbers a token (64); L text tokens, D their width.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.config.schema import EditingConfig, ModelConfig
from uni_train.data_gen.seeds import derive_seed
from uni_train.errors import UserError
from uni_train.flow.euler import euler_step
from uni_train.flow.guidance import true_cfg
from uni_train.flow.objective import interpolate, velocity_target
from uni_train.flow.schedule import DynamicShift, Schedule, train_timestep
from uni_train.models.base import Example, OnStep, Request, SkillMissing, States, SupervisedLoss, UnifiedModel
from uni_train.models.batches import check_requests
from uni_train.models.qwen_image_edit.condition import EditCondition, padded
from uni_train.models.qwen_image_edit.examples import (
    Dropout,
    Edit,
    EditBatch,
    copies_of,
    draws,
    edits_of,
    noise_of,
    with_thought,
)
from uni_train.models.qwen_image_edit.latents import Grid, Latents, fit_area, pixels, resize
from uni_train.models.qwen_image_edit.reading import (
    ANSWER_SYSTEM,
    EDIT_SYSTEM,
    chat,
    hidden_states,
    user_turn,
    write,
)

UNTRAINED = ("attn.to_add_out.", "txt_mlp.net.0.proj.", "txt_mlp.net.2.")
"""Parameters of the last block that no output depends on: its text stream ends there."""
_LOOK_TOKEN = 28  # pixels a side of what the Qwen2.5-VL takes for one token


@dataclass(frozen=True, slots=True)
class EditSampling:
    """How a model draws and writes.

    Attributes:
        steps: Euler steps. scale: of the guidance by words (true CFG); 1 is none.
        side: images have the area of a square of so many pixels.
        max_tokens: of a thought or an answer. temperature: of both; 0 is greedy.
    """

    steps: int
    scale: float
    side: int
    max_tokens: int
    temperature: float

    @classmethod
    def from_config(cls, config: ModelConfig) -> EditSampling:
        """The settings of a model's configuration."""
        one = config.sampling
        side = config.architecture.image_size
        return cls(one.steps, one.edit_text_scale, side, one.max_think_tokens, one.temperature)


_LAYER = r"transformer\.transformer_blocks\.\d+\."
_IMAGE_STREAM = r"(attn\.(to_[qkv]|to_out\.0)|img_mlp\.net\.(0\.proj|2))"
_TEXT_STREAM = r"(attn\.(add_[qkv]_proj|to_add_out)|txt_mlp\.net\.(0\.proj|2))"
ADAPTER_LAYERS = {
    "generation": _LAYER + _IMAGE_STREAM,
    "understanding": _LAYER + _TEXT_STREAM,
    "both": f"{_LAYER}({_IMAGE_STREAM}|{_TEXT_STREAM})",
}
"""The transformer has two streams: of images, and of the text that it draws by."""


class QwenImageEdit(UnifiedModel):
    """The parts of a diffusers pipeline, drawing in batches.

    A request's image depends on its batch only by rounding (float32: a latent by at most 1e-4 of the largest).

    Args:
        transformer, text_encoder, vae: QwenImageTransformer2DModel, Qwen2_5_VLForConditionalGeneration,
            AutoencoderKLQwenImage. The transformer alone is trained.
        processor: a `reading.Processor`; for counting tokens anything with its `count`.
        shift: of the noise levels when drawing.
        editing: sizes of shown images, the negative prompt, and which form (Plus or not) it is.
    """

    encoder_trained = False
    adapter_layers = ADAPTER_LAYERS
    # diffusers' and transformers' modules, whose methods nn.Module does not have.
    transformer: Any
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
        sampling: EditSampling,
        editing: EditingConfig,
    ) -> None:
        super().__init__()
        self.name = name
        self.transformer = transformer
        self.text_encoder = text_encoder.requires_grad_(False)
        self.vae = vae.requires_grad_(False)
        self.processor = processor
        self.shift = shift
        self.sampling = sampling
        self.editing = editing
        self.latents = Latents(vae)
        self.dropout = Dropout()
        self.timestep_shift = 1.0
        blocks = list(self.transformer.transformer_blocks)
        for key, parameter in blocks[-1].named_parameters():
            if key.startswith(UNTRAINED):
                parameter.requires_grad_(False)

    # --- asking --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def think(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: OnStep | None = None
    ) -> list[str]:
        """What the Qwen2.5-VL says of the image and of the change, in the chat that images are drawn under."""
        return self._write(requests, EDIT_SYSTEM, temperature, on_step)

    @torch.no_grad()
    def answer(self, requests: Sequence[Request], *, think: bool = False, on_step: OnStep | None = None) -> list[str]:
        """A reply to images (here there may be none) and prompt. It has no mode of thinking before it answers."""
        if think:
            raise SkillMissing(self.name, "think before it answers")
        return self._write(requests, ANSWER_SYSTEM, None, on_step, needs_image=False)

    @torch.no_grad()
    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        """Images by Euler's method from each request's own noise; a thought is read as part of the prompt."""
        if not requests:
            return []
        condition = self.encode(requests)
        x = self.noise(requests)
        schedule = Schedule.together([self.schedule(condition, row) for row in range(len(requests))]).to(self.device)
        for step in range(schedule.steps):
            t, t_next = schedule.step(step)
            x = euler_step(x, self.velocity(x, t, condition), t, t_next)
            if on_step is not None:
                on_step(step + 1, self.sampling.steps)
        return self.decode(x, condition)

    # --- hooks for reinforcement learning ------------------------------------------------------------------------

    @torch.no_grad()
    def encode(self, requests: Sequence[Request]) -> EditCondition:
        """Read each request once: its chat, the chat with the negative prompt (if guided), its images as latents.

        Images and requests of any sizes go together.

        Raises:
            UserError: a request without an image or a prompt, or one that cannot be read.
        """
        self._check(requests)
        edits = [
            (r.prompt if r.thought is None else with_thought(r.prompt, r.thought), self._looked(r.images))
            for r in requests
        ]
        text = self._states([words for words, _ in edits], [images for _, images in edits])
        empty = None
        if self.sampling.scale > 1:
            empty = self._states([self.editing.negative_prompt] * len(edits), [images for _, images in edits])
        shown = [[pixels(image) for image in self._shown(request.images)] for request in requests]
        shapes = [
            (self._grid(self.picture_size(request)), *(self.latents.grid(image.shape[1:]) for image in images))
            for request, images in zip(requests, shown, strict=True)
        ]
        return EditCondition(text, empty, self._encode(shown), shapes, list(range(len(requests))))

    def noise(self, requests: Sequence[Request]) -> Tensor:
        """x at t = 1: float32 [B, G, C], each row from its request's seed; zero behind smaller images."""
        rows = []
        for request in requests:
            h, w = self._grid(self.picture_size(request))
            generator = torch.Generator().manual_seed(derive_seed(request.seed, "draw"))
            rows.append(torch.randn(h * w, self.latents.channels, generator=generator))
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(self.device)

    def sampling_at(self, guidance: float) -> EditSampling:
        return replace(self.sampling, scale=guidance)

    def schedule(self, condition: EditCondition, row: int = 0, steps: int | None = None) -> Schedule:
        """The noise levels of one row's image: a larger one has higher levels."""
        h, w = condition.grids[row]
        return self.shift.schedule(self.sampling.steps if steps is None else steps, h * w)

    def velocity(self, x_t: Tensor, t: Tensor | float, condition: EditCondition) -> Tensor:
        """Guided velocity noise - clean, float32 [B, G, C], with gradients to the weights and x_t where enabled.

        `t`: a number, or [B]. Rows of equal sizes go through the transformer together. G may be larger than the
        images ask for (rows taken from a larger batch).
        """
        levels = torch.as_tensor(t, dtype=torch.float32, device=x_t.device).expand(len(condition))
        order: list[int] = []
        parts: list[Tensor] = []
        for rows in condition.alike():
            readings = [condition.rows[row] for row in rows]
            used = condition.grids[rows[0]][0] * condition.grids[rows[0]][1]
            x = x_t[rows, :used]
            velocity = self._predict(x, levels[rows], condition, condition.text, readings)
            if condition.empty is not None:
                unguided = self._predict(x, levels[rows], condition, condition.empty, readings)
                velocity = true_cfg(velocity, unguided, self.sampling.scale)
            parts.append(nn.functional.pad(velocity, (0, 0, 0, x_t.shape[1] - used)))
            order += rows
        return torch.cat(parts)[torch.tensor(order).argsort().to(x_t.device)]

    def decode(self, latents: Tensor, condition: EditCondition | None = None) -> list[np.ndarray]:
        """Images uint8 [H, W, 3] of clean latents [B, G, C]; None: squares of the model's own size."""
        own = self._grid((self.sampling.side, self.sampling.side))
        return self.latents.decode(latents, condition.grids if condition is not None else [own] * len(latents))

    def _predict(
        self, x: Tensor, t: Tensor, condition: EditCondition, states: Sequence[Tensor], readings: Sequence[int]
    ) -> Tensor:
        """The transformer's velocity float32 [B, G, C] for rows of equal shapes."""
        dtype = self.transformer.dtype
        text, mask = padded([states[reading] for reading in readings])
        shown = torch.stack([condition.latents[reading] for reading in readings])
        found = self.transformer(
            hidden_states=torch.cat([x, shown.to(x)], dim=1).to(dtype),
            timestep=t.to(dtype),
            encoder_hidden_states=text.to(x.device, dtype),
            encoder_hidden_states_mask=mask,
            img_shapes=[[(1, *grid) for grid in condition.shapes[readings[0]]]] * len(readings),
            return_dict=False,
        )[0]
        return found[:, : x.shape[1]].float()

    # --- training ------------------------------------------------------------------------------------------------

    def prepare_training(
        self,
        *,
        timestep_shift: float,
        text_dropout: float,
        vit_dropout: float = 0.0,
        vae_dropout: float = 0.0,
        activation_checkpointing: bool = False,
    ) -> None:
        self.timestep_shift = timestep_shift
        self.dropout = Dropout(text_dropout, vit_dropout, vae_dropout)
        if activation_checkpointing:
            self.transformer.enable_gradient_checkpointing()
        else:
            self.transformer.disable_gradient_checkpointing()

    def collate(self, examples: Sequence[Example], seed: int) -> EditBatch:
        """Edits and noised copies of their targets. All draws come from `Example.seed`, none from `seed`.

        Raises:
            UserError: an example that is no edit.
        """
        texts: list[str] = []
        looked: list[np.ndarray] = []
        batch = EditBatch({}, [], [], [], [], [], torch.empty(0))
        levels: list[Tensor] = []
        for example in examples:
            random_ = draws(example)
            for number, edit in enumerate(edits_of(example)):
                prompt, seen, shown = self._thinned(edit, random_)
                looked += seen
                texts.append(chat(EDIT_SYSTEM, user_turn(prompt, len(seen), self.editing.plus)))
                batch.shown.append([pixels(image) for image in self._shown(shown)])
                size = self._target_size(edit.target)
                grids = [self.latents.grid(image.shape[1:]) for image in batch.shown[-1]]
                batch.shapes.append((self._grid(size), *grids))
                copies = copies_of(example)
                batch.rows += [len(batch.shapes) - 1] * copies
                tokens = batch.shapes[-1][0][0] * batch.shapes[-1][0][1]
                if isinstance(edit.target, States):
                    batch.targets += torch.from_numpy(edit.target.clean[:, :tokens]).unbind()
                    batch.noise += torch.from_numpy(edit.target.noise[:, :tokens]).unbind()
                    levels.append(torch.from_numpy(edit.target.t).float())
                    continue
                batch.targets += [pixels(resize(edit.target, size))] * copies
                drawn = [noise_of(example, number, d, (tokens, self.latents.channels)) for d in range(copies)]
                batch.noise += [noise for noise, _ in drawn]
                levels.append(train_timestep(torch.stack([logit for _, logit in drawn]), self.timestep_shift))
        batch.inputs = dict(self.processor(texts, looked))
        batch.levels = torch.cat(levels)
        return batch

    def supervised_loss(self, batch: EditBatch, passes: int | None = None) -> SupervisedLoss:
        """The rectified-flow loss on the targets, under the shown images as latents and the chat; no guidance.

        `passes` of the transformer are made, at least one for each size of edits: devices that hold parts of one
        another's weights have to ask for them equally often. Those too many count nothing.
        """
        device = self.device
        with torch.no_grad():
            text = hidden_states(self.text_encoder, batch.inputs, self.editing.positions)
            condition = EditCondition(text, None, self._encode(batch.shown), batch.shapes, batch.rows)
            clean, _ = padded([one.to(device) for one in self._clean(batch.targets)])
            noise, mask = padded([one.to(device) for one in batch.noise])
            t = batch.levels.to(device)
            x_t = interpolate(clean, noise, t.view(-1, 1, 1))
        error = (self.velocity(x_t, t, condition) - velocity_target(clean, noise)).square().mean(-1)
        if mask is not None:
            error = error * mask
        total = error.sum()
        sizes = condition.alike()
        rows = min(sizes, key=len)
        for _ in range(0 if passes is None else passes - len(sizes)):
            total = total + 0 * self.velocity(x_t[rows], t[rows], condition.select(rows)).sum()
        none = error.new_zeros(())
        return SupervisedLoss(none, none, total, none + batch.tokens)

    def _clean(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """Latents [G, C] of targets; an image that comes several times is encoded once."""
        images = {id(one): one for one in targets if one.dtype == torch.uint8}
        encoded = dict(zip(images, self.latents.encode(list(images.values())), strict=True)) if images else {}
        return [encoded.get(id(one), one) for one in targets]

    def passes(self, batch: EditBatch) -> int:
        """Forward passes of the transformer that `supervised_loss` makes: one for each size of edits."""
        return len({batch.shapes[row] for row in batch.rows})

    def token_counts(self, batch: EditBatch) -> tuple[int, int]:
        """Supervised text tokens (none) and noised latent tokens."""
        return 0, batch.tokens

    def example_tokens(self, example: Example) -> int:
        """Tokens that go through the transformer for an example of which nothing is left out.

        Raises:
            UserError: it is no edit.
        """
        tokens = 0
        for edit in edits_of(example):
            self._check_count(len(edit.images), "an example")
            tokens += sum(self.shape(edit)) + sum(self._looked_tokens(image) for image in edit.images)
            tokens += self.processor.count(edit.prompt)
        return tokens * copies_of(example)

    def shape(self, edit: Edit) -> tuple[int, int]:
        """Latent tokens of an edit: of its target, and of its shown images."""
        h, w = self._grid(self._target_size(edit.target))
        grids = [self._grid(fit_area(self._latent_side, *image.shape[:2])) for image in edit.images]
        return h * w, sum(one[0] * one[1] for one in grids)

    def describe(self) -> dict[str, Any]:
        return {"transformer": dict(self.transformer.config)}

    def _thinned(self, edit: Edit, random_: random.Random) -> tuple[str, list[np.ndarray], Sequence[np.ndarray]]:
        """Words, images to look at and images as latents of an edit, each of them left out now and then."""
        drop = self.dropout
        prompt = self.editing.negative_prompt if random_.random() < drop.text else edit.prompt
        seen = self._looked(() if random_.random() < drop.look else edit.images)
        return prompt, seen, () if random_.random() < drop.latents else edit.images

    # --- requests and images -------------------------------------------------------------------------------------

    def _write(
        self,
        requests: Sequence[Request],
        system: str,
        temperature: float | None,
        on_step: OnStep | None,
        needs_image: bool = True,
    ) -> list[str]:
        if not requests:
            return []
        self._check(requests, needs_image)
        images = [self._looked(request.images) for request in requests]
        return write(
            self.text_encoder,
            self.processor,
            [chat(system, user_turn(request.prompt, len(request.images), self.editing.plus)) for request in requests],
            [image for own in images for image in own],
            self.sampling.max_tokens,
            self.sampling.temperature if temperature is None else temperature,
            [derive_seed(request.seed, "write") for request in requests],
            on_step,
        )

    def _states(self, prompts: Sequence[str], images: Sequence[Sequence[np.ndarray]]) -> list[Tensor]:
        """Hidden states of one chat each; `images` as they are looked at."""
        texts = [
            chat(EDIT_SYSTEM, user_turn(prompt, len(own), self.editing.plus))
            for prompt, own in zip(prompts, images, strict=True)
        ]
        inputs = self.processor(texts, [image for own in images for image in own])
        return hidden_states(self.text_encoder, dict(inputs), self.editing.positions)

    def _encode(self, shown: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Latents [K, C] of each row's images, float32 on the transformer's device."""
        flat = iter(self.latents.encode([image for images in shown for image in images]))
        none = torch.empty(0, self.latents.channels)
        return [torch.cat([none.to(self.device), *(next(flat).to(self.device) for _ in images)]) for images in shown]

    def _looked(self, images: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Images as the Qwen2.5-VL is given them."""
        return [resize(image, fit_area(self._look_side, *image.shape[:2])) for image in images]

    def _shown(self, images: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Images as the VAE is given them."""
        return [resize(image, fit_area(self._latent_side, *image.shape[:2])) for image in images]

    def _looked_tokens(self, image: np.ndarray) -> int:
        """What the Qwen2.5-VL makes of one image."""
        height, width = fit_area(self._look_side, *image.shape[:2])
        return round(height / _LOOK_TOKEN) * round(width / _LOOK_TOKEN)

    @property
    def _look_side(self) -> int:
        return self.editing.look_size if self.editing.plus else self.sampling.side

    @property
    def _latent_side(self) -> int:
        return self.editing.latent_size if self.editing.plus else self.sampling.side

    def picture_size(self, request: Request) -> tuple[int, int]:
        if request.size is not None:
            return request.size
        if not request.images:
            return self.sampling.side, self.sampling.side
        return fit_area(self.sampling.side, *request.images[-1].shape[:2])

    def _target_size(self, target: np.ndarray | States) -> tuple[int, int]:
        """Of an image that is learned: its own aspect ratio; given states have a size."""
        if isinstance(target, States):
            return target.size
        return fit_area(self.sampling.side, *target.shape[:2])

    def _grid(self, size: Sequence[int]) -> Grid:
        return self.latents.grid(size)

    def _check(self, requests: Sequence[Request], needs_image: bool = True) -> None:
        """Raises UserError for the first request that cannot be meant."""
        check_requests(requests)
        for request in requests:
            if "<|" in request.prompt and "|>" in request.prompt:
                raise UserError(
                    f"request {request.id}: its prompt has a marker of the chat in it ({request.prompt[:60]!r})",
                    "Leave out what looks like <|...|>.",
                )
            if needs_image and not request.images:
                raise UserError(
                    f"request {request.id} shows no image, but {self.name} draws by editing one",
                    "Add an image (--image FILE), or choose a model that draws from text alone.",
                )
            self._check_count(len(request.images), f"request {request.id}")
            if request.size is not None:
                self.check_size(*request.size, f"request {request.id}")

    def _check_count(self, images: int, what: str) -> None:
        if images > 1 and not self.editing.plus:
            raise UserError(
                f"{what} shows {images} images, but {self.name} takes one",
                "Show one, or use the Plus form: model=qwen_image_edit_2509 or model=qwen_image_edit_2511.",
            )

    def check_size(self, height: int, width: int, where: str) -> None:
        stride = self.latents.stride
        if height < stride or width < stride or height % stride or width % stride:
            near = (max(stride, round(side / stride) * stride) for side in (height, width))
            raise UserError(
                f"{where}: {self.name} cannot draw {height} x {width} pixels (height x width)",
                f"Sides are multiples of {stride}; the nearest is {' x '.join(map(str, near))}.",
            )
