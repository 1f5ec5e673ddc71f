"""BAGEL as a UnifiedModel: requests and examples in, segments to the decoder, texts and images out.

How a conversation is laid out (released inference code): [system prompt] [images] [prompt] [thought] [target]. Only
think mode has a system prompt and a thought. To draw from an image, BAGEL reads it twice, with the VAE and then with
the ViT. To write about one, it uses the ViT alone. examples.py lays out training examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.config.schema import SamplingConfig
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.flow.guidance import Guidance
from uni_train.flow.schedule import Schedule, bagel_schedule
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.caches import KVCache
from uni_train.models.bagel.config import ADAPTER_LAYERS, PARTS
from uni_train.models.bagel.examples import ExamplePacker, NoiseLevels, Tokenizer
from uni_train.models.bagel.generation import (
    Contexts,
    Denoiser,
    generate_text,
    guidance_contexts,
    prefill,
    read_contexts,
    sample_latents,
)
from uni_train.models.bagel.images import ImageTransform, latent_tokens, patches
from uni_train.models.bagel.packing import PackedBatch, Segment, Text, VaeImage, VitImage, encode, pack
from uni_train.models.bagel.positions import unpatchify
from uni_train.models.bagel.prefixes import PrefixStore
from uni_train.models.base import (
    Dropout,
    Example,
    FlowPolicy,
    InterleavedGenerator,
    OnStep,
    Request,
    SkillMissing,
    SupervisedLoss,
    ThoughtPolicy,
)
from uni_train.models.batches import check_requests, rows_by, vae_batches
from uni_train.models.transfer import upload


@dataclass(frozen=True, slots=True)
class Speech:
    """The fixed sentences of a checkpoint.

    Attributes:
        think_system: the system prompt of thinking before drawing.
        answer_system: the system prompt of thinking before answering; None: this checkpoint has none.
    """

    think_system: str
    answer_system: str | None = None


class BagelUnified(FlowPolicy, ThoughtPolicy, InterleavedGenerator):
    """A BAGEL with its VAE and tokenizer.

    A request's texts do not depend on its batch, its images only by rounding (float32: a latent by at most 1e-4 of
    the largest, a pixel by 1).

    Args:
        image_size: height and width in pixels of the images it draws where nothing else asks for a size.
        noise_levels: how training draws t before the shift: "logit_normal" (BAGEL) or "uniform".
        vae_transform, vit_transform: the resizes of input images; by default BAGEL's, as far as `image_size` and the
            ViT's position table reach.
    """

    skill = "show its attention and states: only BAGEL and nano can"
    trained_parts = PARTS
    adapter_layers = ADAPTER_LAYERS
    thread_safe_tokenizer = True

    def __init__(
        self,
        name: str,
        bagel: Bagel,
        vae: nn.Module,
        tokenizer: Tokenizer,
        speech: Speech,
        sampling: SamplingConfig,
        image_size: int,
        noise_levels: NoiseLevels = "logit_normal",
        vae_transform: ImageTransform | None = None,
        vit_transform: ImageTransform | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.bagel = bagel
        self.vae = vae.requires_grad_(False)
        self.tokenizer = tokenizer
        self.speech = speech
        self.sampling = sampling
        self.image_size = image_size
        self.stride = int(self.vae.downsample) * bagel.config.latent_patch_size  # type: ignore[arg-type]
        self.vae_transform = vae_transform or ImageTransform(image_size, min(512, image_size), self.stride)
        if vit_transform is None and bagel.config.vit is not None:
            patch = bagel.config.vit.patch_size
            side = min(980, bagel.config.vit_max_num_patch_per_side * patch)
            vit_transform = ImageTransform(side, min(224, side), patch)
        self.vit_transform = vit_transform
        self.examples = ExamplePacker(
            bagel, vae, tokenizer, speech.think_system, noise_levels, self.vae_transform, self.vit_transform
        )

    # --- training (examples.py) ----------------------------------------------------------------------------------

    def prepare_training(
        self,
        *,
        timestep_shift: float,
        text_dropout: float,
        vit_dropout: float = 0.0,
        vae_dropout: float = 0.0,
        activation_checkpointing: int = 0,
    ) -> None:
        self.bagel.config = replace(self.bagel.config, timestep_shift=timestep_shift)
        self.bagel.checkpoint_layers(activation_checkpointing)
        self.examples.dropout = Dropout(text_dropout, vit_dropout, vae_dropout)

    def read_often(self, examples: Iterable[Example]) -> None:
        """Keep keys and values of these texts, where all weights that they pass are frozen."""
        self.bagel.prefixes = None
        if self.bagel.reads_frozen():
            decoder, impl = self.bagel.language_model.model, self.bagel.config.attention
            store = PrefixStore(decoder, impl, map(self.examples.prefix, examples))
            self.bagel.prefixes = store if len(store) else None

    def collate(self, examples: Sequence[Example], seed: int) -> list[PackedBatch]:
        """Examples to a few packed batches, each of rows of like length. All draws come from `Example.seed`."""
        return self.examples.pack(examples)

    def supervised_loss(self, batch: Sequence[PackedBatch], passes: int | None = None) -> SupervisedLoss:
        """Cross-entropy and velocity error (BAGEL's two objectives), summed over the packed batches.

        `passes`: forward passes to make, at least one a packed batch, each of which uses all weights: devices that hold
        parts of one another's weights have to ask for them equally often. Those too many count nothing.
        """
        self.bagel.use_all_weights(passes is not None)
        zero = torch.zeros((), device=self.device)
        ce = mse = zero
        errors: list[Tensor] = []
        for part in batch:
            out = self.bagel(part)
            ce, mse = ce + out.ce.sum(), mse + out.mse.sum()
            errors.append(out.mse)
        for _ in range(0 if passes is None else passes - len(batch)):
            out = self.bagel(min(batch, key=lambda part: part.und_id.numel() + part.gen_rope.numel()))
            ce, mse = ce + 0 * out.ce.sum(), mse + 0 * out.mse.sum()
        tokens, latents = self.token_counts(batch)
        each = lambda: torch.cat([part.by_image(own) for part, own in zip(batch, errors, strict=True)])  # noqa: E731
        return SupervisedLoss(ce, zero + tokens, mse, zero + latents, each)

    def passes(self, batch: Sequence[PackedBatch]) -> int:
        """Forward passes that `supervised_loss` makes."""
        return len(batch)

    def token_counts(self, batch: Sequence[PackedBatch]) -> tuple[int, int]:
        """Supervised text tokens and noised latent tokens."""
        return sum(len(part.ce_index) for part in batch), sum(len(part.mse_index) for part in batch)

    def example_tokens(self, example: Example) -> int:
        return self.examples.length(example)

    # --- asking --------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def think(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: OnStep | None = None
    ) -> list[str]:
        """The text after [system prompt] [images] [prompt], as `draw` will read it."""
        self.check(requests)
        contexts = [full for full, _, _ in self._contexts(requests, think=True)]
        return self._texts(contexts, requests, temperature, on_step)

    @torch.inference_mode()
    def answer(self, requests: Sequence[Request], *, think: bool = False, on_step: OnStep | None = None) -> list[str]:
        """The text after [images] [prompt], or with the system prompt before if it is to think aloud."""
        self.check(requests)
        if think and self.speech.answer_system is None:
            raise SkillMissing(self.name, "think before it answers")
        system = [self.text(self.speech.answer_system)] if think and self.speech.answer_system is not None else []
        contexts = [[*system, *self.seen(request), self.text(request.prompt)] for request in requests]
        for request, context in zip(requests, contexts, strict=True):
            self.check_length(request, context)
        return self._texts(contexts, requests, None, on_step)

    @torch.inference_mode()
    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        """Images by Euler's method from each request's own noise, of `picture_size`."""
        drawn: dict[int, np.ndarray] = {}
        for rows in rows_by(bool(request.images) for request in requests).values():
            part = [requests[row] for row in rows]
            drawn.update(zip(rows, self.drawn(self.encode(part), self.noise(part), on_step), strict=True))
        return [drawn[row] for row in range(len(requests))]

    @torch.inference_mode()
    def think_and_draw(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: OnStep | None = None
    ) -> tuple[list[str], list[np.ndarray]]:
        """`think`, then `draw` with the thoughts; each request is read once, and its thought never."""
        self.check(requests)
        thoughts: dict[int, str] = {}
        drawn: dict[int, np.ndarray] = {}
        for rows in rows_by(bool(request.images) for request in requests).values():
            part = [requests[row] for row in rows]
            read = self._read(part, think=True)
            texts, full = self.written(part, read.full, temperature, on_step)
            thoughts.update(zip(rows, texts, strict=True))
            pictures = self.drawn(replace(read, full=full), self.noise(part), on_step)
            drawn.update(zip(rows, pictures, strict=True))
        everyone = range(len(requests))
        return [thoughts[row] for row in everyone], [drawn[row] for row in everyone]

    @torch.inference_mode()
    def compose(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[list[str | np.ndarray]]:
        """Texts and images in turns. Raises SkillMissing without `sampling.interleaving`."""
        from uni_train.models.bagel.interleaving import compose

        return compose(self, requests, on_step)

    @property
    def vocabulary(self) -> int:
        return self.bagel.config.llm.vocab_size

    def tokenizer_problem(self, text: str) -> str | None:
        """Texts come back, and the markers are four ids of the vocabulary."""
        marks = self.bagel.config.tokens
        ids = (marks.bos, marks.eos, marks.start_of_image, marks.end_of_image)
        if len(set(ids)) < len(ids) or not all(0 <= marker < self.vocabulary for marker in ids):
            return f"markers {ids} must be four ids below {self.vocabulary}"
        decoded = self.tokenizer.decode(self.tokenizer.encode(text))
        return f"{text!r} comes back as {decoded!r}" if decoded.split() != text.split() else None

    def describe(self) -> dict[str, Any]:
        return {"bagel": self.bagel.config.to_dict(), "image_size": self.image_size}

    # --- hooks for reinforcement learning ------------------------------------------------------------------------

    @torch.no_grad()
    def encode(self, requests: Sequence[Request]) -> Contexts:
        """What images of these requests are drawn under, with the guidance of `sampling`.

        Raises:
            UserError: requests with and without input images together, which are guided differently.
        """
        self.check(requests)
        if len({bool(request.images) for request in requests}) > 1:
            raise UserError(
                f"request {requests[0].id} and others differ in having input images",
                "Encode requests for editing and for drawing from text apart.",
            )
        return self._read(requests, think=False)

    @torch.no_grad()
    def noise(self, requests: Sequence[Request]) -> Tensor:
        rows = []
        for request in requests:
            h, w = self.grid(self.picture_size(request))
            size = (h * w, self.bagel.config.latent_dim)
            rows.append(torch.randn(size, generator=self._generator(request, "draw")))
        return upload(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), self.device)

    def velocity(self, x_t: Tensor, t: Tensor | float, condition: Contexts) -> Tensor:
        used = max(h * w for h, w in condition.grids)
        velocity = Denoiser(self.bagel, condition)(x_t[:, :used], t)
        return torch.nn.functional.pad(velocity, (0, 0, 0, x_t.shape[1] - used))

    @torch.no_grad()
    def write_thoughts(self, requests: Sequence[Request]) -> list[list[int]]:
        self.check(requests)
        cache = prefill(self.bagel, [full for full, _, _ in self._contexts(requests, think=True)])
        limits = self._limits(cache)
        ids, _ = self._write(requests, cache, 1.0, None, close=False)
        end = self.bagel.config.tokens.eos
        return [[*row, end] if len(row) < most else row for row, most in zip(ids, limits, strict=True)]

    def thought_text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode([token for token in ids if token != self.bagel.config.tokens.eos])

    def thought_log_probs(self, requests: Sequence[Request], ids: Sequence[Sequence[int]]) -> Tensor:
        end = self.bagel.config.tokens.eos
        rows: list[list[Any]] = []
        chosen: list[bool] = []
        for (full, _, _), own in zip(self._contexts(requests, think=True), ids, strict=True):
            done = bool(own) and own[-1] == end
            rows.append([encode([*full, Text(list(own[:-1] if done else own), loss=True)], self.bagel.config)])
            # The end marker of a thought that was cut has a label, but has not been chosen.
            chosen += [True] * len(own) + [False] * (not done)
        surprise = self.bagel(pack(rows, self.bagel.config).to(self.device)).ce
        return -surprise[upload(torch.tensor(chosen).nonzero().squeeze(1), surprise.device)]

    @property
    def most_thought_ids(self) -> int:
        return self.sampling.max_think_tokens + 1

    def guidance(self, images: bool) -> Guidance:
        """Of images from images and text, or else from text alone."""
        own = self.sampling
        scales = own.cfg_text_scale, own.cfg_img_scale, own.cfg_interval, own.cfg_renorm
        if images:
            scales = own.edit_text_scale, own.edit_img_scale, own.edit_interval, own.edit_renorm
        return Guidance(*scales, own.cfg_renorm_min)

    def schedule(self, condition: Contexts | None = None, row: int = 0, steps: int | None = None) -> Schedule:
        """The same for images of all sizes."""
        return bagel_schedule((steps or self.sampling.steps) + 1, self.sampling.timestep_shift)

    @torch.no_grad()
    def decode(self, latents: Tensor, condition: Contexts | None = None) -> list[np.ndarray]:
        side = (self.image_size, self.image_size)
        grids = [self.grid(side)] * len(latents) if condition is None else condition.grids
        weight = next(self.vae.parameters())
        pictures: dict[int, np.ndarray] = {}
        for rows in vae_batches([(h * self.stride, w * self.stride) for h, w in grids]):
            grid = grids[rows[0]]
            tokens = latents[rows, : grid[0] * grid[1]]
            z = unpatchify(tokens, grid, self.bagel.config.latent_patch_size).to(weight.device, weight.dtype)
            pixels_BCHW = (self.vae.decode(z).float() * 0.5 + 0.5).clamp(0, 1) * 255  # type: ignore[operator]
            pictures.update(zip(rows, pixels_BCHW.to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy(), strict=True))
        return [pictures[row] for row in range(len(latents))]

    # --- requests as segments ------------------------------------------------------------------------------------

    def _read(self, requests: Sequence[Request], think: bool) -> Contexts:
        """The contexts of requests that all have images, or none of which has."""
        grids = [self.grid(self.picture_size(request)) for request in requests]
        guidance = self.guidance(bool(requests and requests[0].images))
        return read_contexts(self.bagel, self._contexts(requests, think), grids, guidance)

    def _contexts(
        self, requests: Sequence[Request], think: bool
    ) -> list[tuple[list[Segment], list[Segment], list[Segment]]]:
        """The three contexts of each request, in think mode where it has a thought or is about to have one."""
        contexts = []
        for request, latents in zip(requests, self.latents(requests), strict=True):
            system = [self.text(self.speech.think_system)] if think or request.thought is not None else []
            thought = [self.text(request.thought)] if request.thought is not None and not think else []
            images = [segment for pair in zip(latents, self.seen(request), strict=True) for segment in pair]
            contexts.append(guidance_contexts([*images, self.text(request.prompt)], system, thought))
            self.check_length(request, contexts[-1][0])
        return contexts

    def seen(self, request: Request) -> list[Segment]:
        """Input images as the ViT sees them."""
        if not request.images:
            return []
        if self.vit_transform is None:
            raise SkillMissing(self.name, "look at images")
        patch = self.vit_transform.stride
        images = [self.vit_transform.resize(self.vae_transform.resize(image)) for image in request.images]
        return [VitImage((i.shape[0] // patch, i.shape[1] // patch), patches(i, patch)) for i in images]

    def latents(self, requests: Sequence[Request]) -> list[list[Segment]]:
        """Input images as latents, sampled with noise of the request's seed."""
        images: list[np.ndarray] = []
        noises: list[Tensor] = []
        for request in requests:
            generator = self._generator(request, "see")
            for image in request.images:
                # Twice, as the released code does: once for all that look, and again on the way into the VAE.
                images.append(self.vae_transform.resize(self.vae_transform.resize(image)))
                h, w = self.grid(images[-1].shape[:2])
                p = self.bagel.config.latent_patch_size
                noises.append(torch.randn(self.bagel.config.latent_channels, h * p, w * p, generator=generator))
        tokens = latent_tokens(self.vae, images, noises, self.bagel.config.latent_patch_size)
        pairs = zip(images, tokens, strict=True)
        segments = iter([VaeImage(self.grid(image.shape[:2]), latent) for image, latent in pairs])
        return [[next(segments) for _ in request.images] for request in requests]

    def text(self, text: str) -> Text:
        return Text(self.tokenizer.encode(text))

    # --- writing and drawing -------------------------------------------------------------------------------------

    def written(
        self, requests: Sequence[Request], cache: KVCache, temperature: float | None, on_step: OnStep | None
    ) -> tuple[list[str], KVCache]:
        """Texts behind contexts, and the contexts with them."""
        ids, full = self._write(requests, cache, temperature, on_step, close=True)
        texts = [self.tokenizer.decode(row) for row in ids]
        again = [self.text(text) for text in texts]
        if [list(text.ids) for text in again] != ids:  # as the released code reads it: from the text, not the ids
            full = prefill(self.bagel, [[text] for text in again], cache)
        return texts, full

    def _write(
        self,
        requests: Sequence[Request],
        cache: KVCache,
        temperature: float | None,
        on_step: OnStep | None,
        close: bool,
    ) -> tuple[list[list[int]], KVCache]:
        """Token ids behind each context, and (if `close`) the contexts with them."""
        temperature = self.sampling.temperature if temperature is None else temperature
        return generate_text(
            self.bagel,
            cache,
            self._limits(cache),
            temperature=temperature,
            generators=[self._generator(r, "write", self.device) for r in requests] if temperature > 0 else None,
            close=close,
            on_step=on_step,
        )

    def _limits(self, cache: KVCache) -> list[int]:
        """Most token ids that may follow each context."""
        positions = self.bagel.config.llm.max_position_embeddings
        return [max(0, min(self.sampling.max_think_tokens, positions - used - 2)) for used in cache.next_rope.tolist()]

    def _texts(
        self,
        contexts: Sequence[Sequence[Segment]],
        requests: Sequence[Request],
        temperature: float | None,
        on_step: OnStep | None,
    ) -> list[str]:
        """What is written behind each context."""
        if not requests:
            return []
        ids, _ = self._write(requests, prefill(self.bagel, contexts), temperature, on_step, close=False)
        return [self.tokenizer.decode(row) for row in ids]

    def drawn(self, contexts: Contexts, noise: Tensor, on_step: OnStep | None) -> list[np.ndarray]:
        x = sample_latents(
            self.bagel,
            contexts,
            noise,
            num_timesteps=self.sampling.steps + 1,
            timestep_shift=self.sampling.timestep_shift,
            on_step=on_step,
        )
        return self.decode(x, contexts)

    def _generator(self, request: Request, use: str, device: torch.device | str = "cpu") -> torch.Generator:
        return torch.Generator(device).manual_seed(derive_seed(request.seed, use))

    # --- sizes and checks ----------------------------------------------------------------------------------------

    def check(self, requests: Sequence[Request]) -> None:
        """Raises UserError for the first request that cannot be meant."""
        check_requests(requests)
        for request in requests:
            if request.size is not None:
                self.check_size(*request.size, f"request {request.id}")

    def check_size(self, height: int, width: int, where: str) -> None:
        most = self.bagel.config.max_latent_size * self.stride
        if height % self.stride or width % self.stride or not 0 < height <= most or not 0 < width <= most:
            near = (min(most, max(self.stride, round(side / self.stride) * self.stride)) for side in (height, width))
            raise UserError(
                f"{where}: {self.name} cannot draw {height} x {width} pixels (height x width)",
                f"Sides are multiples of {self.stride} up to {most}; the nearest is {' x '.join(map(str, near))}.",
            )

    def check_length(self, request: Request, segments: Sequence[Segment]) -> None:
        """Whether the context fits: a position for every text token, one for an image."""
        used = sum(len(segment.ids) + 2 if isinstance(segment, Text) else 1 for segment in segments)
        most = self.bagel.config.llm.max_position_embeddings
        if used > most:
            raise UserError(
                f"request {request.id}: its prompt makes a context of {used} tokens, but {self.name} reads {most}",
                f"Shorten it: {request.prompt[:60]!r}...",
            )

    def picture_size(self, request: Request) -> tuple[int, int]:
        if request.size is not None:
            return request.size
        if request.images:
            return self.vae_transform.target_size(*request.images[-1].shape[:2])
        return self.image_size, self.image_size

    def grid(self, size: tuple[int, ...]) -> tuple[int, int]:
        """Latent tokens (rows, columns) of an image of this height and width."""
        return size[0] // self.stride, size[1] // self.stride
