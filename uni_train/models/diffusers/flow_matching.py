"""Models over a flow-matching transformer of diffusers: its hooks for reinforcement learning, and its training.

Text encoders and VAE stay as they are.

Shapes: B rows, G latent tokens of the largest image of a batch, C numbers a token; L text tokens, D their width.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.flow.objective import interpolate, velocity_target
from uni_train.flow.schedule import train_timestep
from uni_train.models.base import Dropout, Example, FlowPolicy, Request, States, SupervisedLoss
from uni_train.models.batches import check_markers
from uni_train.models.diffusers.classes import FlowTransformer
from uni_train.models.diffusers.condition import FlowCondition, Words, padded
from uni_train.models.diffusers.examples import Edit, FlowBatch, copies_of, draws, edits_of, noise_of
from uni_train.models.diffusers.latents import Grid, fit_area, pixels, resize
from uni_train.models.transfer import level_on, upload

_LAYER = r"transformer\.(single_)?transformer_blocks\.\d+\."
_IMAGE_STREAM = r"(attn2?\.(to_[qkv]|to_out\.0)|(ff|img_mlp)\.net\.(0\.proj|2)|proj_mlp|proj_out)"
_TEXT_STREAM = r"(attn\.(add_[qkv]_proj|to_add_out)|(ff_context|txt_mlp)\.net\.(0\.proj|2))"

ADAPTER_LAYERS = {
    "generation": _LAYER + _IMAGE_STREAM,
    "understanding": _LAYER + _TEXT_STREAM,
    "both": f"{_LAYER}({_IMAGE_STREAM}|{_TEXT_STREAM})",
}
"""The transformers have two streams: of images, and of the text that they draw by."""


class FlowMatchingModel(FlowPolicy):
    """A model whose `transformer` alone is trained; a family says how texts are read.

    Attributes:
        shows_images: whether examples may show images.
        flow: how the transformer is called.
        negative: the prompt that guidance leads away from; None: there is none.
        side: images have the area of a square of so many pixels.
        markers: what its tokenizers read as a marker; no text may hold one.
        source: the folder that it came from; all but the transformer goes from there into every export.
    """

    encoder_trained = False
    adapter_layers = ADAPTER_LAYERS
    shows_images: ClassVar[bool] = False
    chat_tokens: ClassVar[int] = 0
    """Text tokens that the transformer reads around a prompt."""
    markers: frozenset[str]
    transformer: Any  # diffusers' module, whose methods nn.Module does not have
    source: Path

    def _set_up(self, flow: FlowTransformer, vae: nn.Module, side: int, negative: str | None) -> None:
        """To be called when the parts are there."""
        self.flow, self.side, self.negative = flow, side, negative
        self.adapter_alpha = flow.alpha
        self.latents = flow.latents(vae)
        self.timestep_shift, self.dropout = 1.0, Dropout()
        self.transformer.requires_grad_(True)
        for key, parameter in self.transformer.transformer_blocks[-1].named_parameters():
            if flow.untrained and key.startswith(flow.untrained):
                parameter.requires_grad_(False)

    # --- a family's own ------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def guidance(self) -> float:
        """The scale of the guidance by text."""

    @abstractmethod
    def text_tokens(self, prompt: str, images: Sequence[np.ndarray] = ()) -> int:
        """Text tokens that the transformer reads for a prompt and its shown images, without `chat_tokens`."""

    @abstractmethod
    def _inputs(self, texts: Sequence[str], looked: Sequence[np.ndarray]) -> dict[str, Any]:
        """What the text encoders take for texts of `_thinned`; `looked`: images of all of them."""

    @abstractmethod
    def _words(self, inputs: dict[str, Any]) -> list[Words]:
        """The transformer's text inputs."""

    @abstractmethod
    def _thinned(self, edit: Edit, random_: random.Random) -> tuple[str, Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Words, images to look at and images as latents of an edit, each of them left out now and then."""

    # --- hooks for reinforcement learning ------------------------------------------------------------------------

    @property
    def guided(self) -> bool:
        """Whether drawing takes a second pass with the negative prompt."""
        return self.negative is not None and self.guidance > 1

    def noise(self, requests: Sequence[Request]) -> Tensor:
        rows = []
        for request in requests:
            generator = torch.Generator().manual_seed(derive_seed(request.seed, "draw"))
            rows.append(self._noise(self.latents.grid(self.picture_size(request)), generator))
        return upload(nn.utils.rnn.pad_sequence(rows, batch_first=True), self.device)

    def _noise(self, grid: Grid, generator: torch.Generator) -> Tensor:
        return torch.randn(grid[0] * grid[1], self.latents.channels, generator=generator)

    def velocity(self, x_t: Tensor, t: Tensor | float, condition: FlowCondition) -> Tensor:
        """Rows of equal sizes go through the transformer together."""
        return self._velocity(x_t, t, condition, self.guidance)

    def _velocity(self, x_t: Tensor, t: Tensor | float, condition: FlowCondition, guidance: float) -> Tensor:
        device, groups = x_t.device, condition.alike()
        levels = level_on(t, device).expand(len(condition))
        order: list[int] = []
        parts: list[Tensor] = []
        for rows in groups:
            x, own = x_t, levels
            if len(groups) > 1:
                index = upload(torch.tensor(rows), device)
                x, own = x_t[index], levels[index]
            h, w = condition.grids[rows[0]]
            x = x[:, : h * w]
            readings = [condition.rows[row] for row in rows]
            velocity = self._predict(x, own, condition, condition.words, readings, guidance)
            if condition.empty is not None:
                other = self._predict(x, own, condition, condition.empty, readings, guidance)
                velocity = self.flow.guided(velocity, other, guidance)
            parts.append(nn.functional.pad(velocity, (0, 0, 0, x_t.shape[1] - x.shape[1])))
            order += rows
        return torch.cat(parts)[upload(torch.tensor(order).argsort(), device)] if len(groups) > 1 else parts[0]

    def _predict(
        self,
        x: Tensor,
        t: Tensor,
        condition: FlowCondition,
        words: Sequence[Words],
        readings: Sequence[int],
        guidance: float,
    ) -> Tensor:
        """The transformer's velocity float32 [B, G, C] for rows of equal shapes."""
        dtype = self.transformer.dtype
        inputs: dict[str, Tensor] = {}
        for name in words[0]:
            values = [words[reading][name].to(x.device, dtype) for reading in readings]
            if name == "encoder_hidden_states":
                inputs[name], mask = padded(values)
                if mask is not None:
                    inputs["encoder_hidden_states_mask"] = mask
            else:
                inputs[name] = torch.stack(values)
        shown = torch.stack([condition.shown[reading] for reading in readings])
        both, grids = torch.cat([x, shown.to(x)], dim=1).to(dtype), condition.shapes[readings[0]]
        cached = getattr(self.transformer, "is_cache_enabled", False)
        branch = "uncond" if words is condition.empty else "cond"
        with self.transformer.cache_context(branch) if cached else nullcontext():
            return self.flow.velocity(self.transformer, both, t, inputs, grids, guidance)[:, : x.shape[1]].float()

    def decode(self, latents: Tensor, condition: FlowCondition | None = None) -> list[np.ndarray]:
        own = self.latents.grid((self.side, self.side))
        return self.latents.decode(latents, condition.grids if condition is not None else [own] * len(latents))

    # --- training ------------------------------------------------------------------------------------------------

    def prepare_training(
        self,
        *,
        timestep_shift: float,
        text_dropout: float,
        vit_dropout: float = 0.0,
        vae_dropout: float = 0.0,
        activation_checkpointing: int = 0,
    ) -> None:
        self.timestep_shift = timestep_shift
        self.dropout = Dropout(text_dropout, vit_dropout, vae_dropout)
        if activation_checkpointing:
            self.transformer.enable_gradient_checkpointing(_every_nth(self.transformer, activation_checkpointing))
        else:
            self.transformer.disable_gradient_checkpointing()

    def edits_of(self, example: Example) -> list[Edit]:
        """What an example teaches. Raises UserError for one of another kind, or that cannot be read or drawn."""
        edits = edits_of(example, self.shows_images)
        for edit in edits:
            check_markers(edit.prompt, self.markers, "its text")
            self.check_size(*self._target_size(edit.target), "its image")
        return edits

    def collate(self, examples: Sequence[Example], seed: int) -> FlowBatch:
        """Edits and noised copies of their targets. All draws come from `Example.seed`, none from `seed`."""
        texts: list[str] = []
        looked: list[np.ndarray] = []
        batch = FlowBatch({}, [], [], [], [], [], torch.empty(0))
        levels: list[Tensor] = []
        for example in examples:
            random_ = draws(example)
            for number, edit in enumerate(self.edits_of(example)):
                text, seen, shown = self._thinned(edit, random_)
                texts.append(text)
                looked += seen
                batch.shown.append([pixels(image) for image in self._shown(shown)])
                size = self._target_size(edit.target)
                grids = [self.latents.grid(image.shape[1:]) for image in batch.shown[-1]]
                batch.shapes.append((self.latents.grid(size), *grids))
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
                t = train_timestep(torch.stack([logit for _, logit in drawn]), self.timestep_shift)
                levels.append(t if example.noise_level is None else torch.full_like(t, example.noise_level))
        batch.inputs = self._inputs(texts, looked)
        batch.levels = torch.cat(levels)
        return batch

    def supervised_loss(self, batch: FlowBatch, passes: int | None = None) -> SupervisedLoss:
        """The rectified-flow loss on the targets, under the words and the shown images as latents; no guidance.

        `passes` of the transformer are made, at least one for each size of edits: devices that hold parts of one
        another's weights have to ask for them equally often. Those too many count nothing.
        """
        device = self.device
        with torch.no_grad():
            shown = self._encode(batch.shown)
            condition = FlowCondition(self._words(batch.inputs), None, shown, batch.shapes, batch.rows)
            clean, _ = padded([tensor.to(device) for tensor in self._clean(batch.targets)])
            noise, mask = padded([tensor.to(device) for tensor in batch.noise])
            t = batch.levels.to(device)
            x_t = interpolate(clean, noise, t.view(-1, 1, 1))
        error = (self._velocity(x_t, t, condition, 1.0) - velocity_target(clean, noise)).square().mean(-1)
        if mask is not None:
            error = error * mask
        total = error.sum()
        sizes = condition.alike()
        rows = min(sizes, key=len)
        for _ in range(0 if passes is None else passes - len(sizes)):
            total = total + 0 * self._velocity(x_t[rows], t[rows], condition.select(rows), 1.0).sum()
        none = error.new_zeros(())
        each = lambda: error.sum(-1) / error.new_tensor([len(noise) for noise in batch.noise])  # noqa: E731
        return SupervisedLoss(none, none, total, none + batch.tokens, each)

    def _clean(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """Latents [G, C] of targets; an image that comes several times is encoded once."""
        images = {id(target): target for target in targets if target.dtype == torch.uint8}
        encoded = dict(zip(images, self.latents.encode(list(images.values())), strict=True)) if images else {}
        return [encoded.get(id(target), target) for target in targets]

    def passes(self, batch: FlowBatch) -> int:
        """Forward passes of the transformer that `supervised_loss` makes: one for each size of edits."""
        return len({batch.shapes[row] for row in batch.rows})

    def token_counts(self, batch: FlowBatch) -> tuple[int, int]:
        """Supervised text tokens (none) and noised latent tokens."""
        return 0, batch.tokens

    def example_tokens(self, example: Example) -> int:
        edits = self.edits_of(example)
        tokens = sum(sum(self.shape(edit)) + self.text_tokens(edit.prompt, edit.images) for edit in edits)
        return tokens * copies_of(example)

    def shape(self, edit: Edit) -> tuple[int, int]:
        """Latent tokens of an edit: of its target, and of its shown images."""
        h, w = self.latents.grid(self._target_size(edit.target))
        return h * w, sum(grid[0] * grid[1] for grid in self.shown_grids(edit.images))

    # --- images --------------------------------------------------------------------------------------------------

    @property
    def _shown_side(self) -> int:
        """Shown images have the area of a square of so many pixels."""
        return self.side

    def shown_grids(self, images: Sequence[np.ndarray]) -> list[Grid]:
        """Of images that are shown as latents."""
        return [self.latents.grid(fit_area(self._shown_side, *image.shape[:2])) for image in images]

    def _shown(self, images: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Images as the VAE is given them."""
        return [resize(image, fit_area(self._shown_side, *image.shape[:2])) for image in images]

    def _encode(self, shown: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Latents [K, C] of each row's images, float32 on the transformer's device."""
        flat = iter(self.latents.encode([image for images in shown for image in images]))
        none = torch.empty(0, self.latents.channels)
        return [torch.cat([none.to(self.device), *(next(flat).to(self.device) for _ in images)]) for images in shown]

    def _target_size(self, target: np.ndarray | States) -> tuple[int, int]:
        """Of an image that is learned: its own aspect ratio; given states have a size."""
        if isinstance(target, States):
            return target.size
        return fit_area(self.side, *target.shape[:2])

    def picture_size(self, request: Request) -> tuple[int, int]:
        if request.size is not None:
            return request.size
        if not request.images:
            return self.side, self.side
        return fit_area(self.side, *request.images[-1].shape[:2])

    def check_size(self, height: int, width: int, where: str) -> None:
        stride = self.latents.stride
        most = stride * (self.transformer.config.get("pos_embed_max_size") or 2**16)
        if not all(side in range(stride, most + 1, stride) for side in (height, width)):
            near = (min(most, max(stride, round(side / stride) * stride)) for side in (height, width))
            raise UserError(
                f"{where}: {self.name} cannot draw {height} x {width} pixels (height x width)",
                f"Sides are multiples of {stride}; the nearest is {' x '.join(map(str, near))}.",
            )


def _every_nth(transformer: nn.Module, every: int) -> Callable[..., Any]:
    """How diffusers calls its blocks: every n-th is computed again in the backward pass."""
    lists = (getattr(transformer, name, ()) for name in ("transformer_blocks", "single_transformer_blocks"))
    again = [block for blocks in lists for block in blocks][::every]

    def call(block: nn.Module, *inputs: Any) -> Any:
        return checkpoint(block, *inputs, use_reentrant=False) if any(block is one for one in again) else block(*inputs)

    return call
