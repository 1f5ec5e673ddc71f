"""Training examples as BAGEL's packed batches.

An example is a row of texts and images (`Turn`), each shown or learned. The parts of a plain `Example` stand for
[system prompt] [images] [prompt] [thought] [answer] [target]. The system prompt is there only with a thought. An image
enters

    shown, nothing is drawn     as ViT patches                      understanding
    shown, something is drawn   as clean latents, then ViT patches  editing
    learned                     as noised latents; if anything follows, then also as a shown one

A target may be noised several times after one text (`Example.noise_draws`): noised images see the text but not each
other. `Example.states` are such images too, whose noise levels, latents and noise are given. For guidance, what an
image is drawn from is left out at random (`Dropout`), as in the released training code; text learned without any image
to draw is never left out.

Two things differ from the released code on purpose: an image is encoded at its own size, as when generating, not
padded to the largest of its batch; and one that is learned and then shown is encoded once for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise, zip_longest
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.flow.schedule import train_logit
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.images import ImageTransform, latent_tokens, patches, resized
from uni_train.models.bagel.packing import (
    Encoded,
    PackedBatch,
    Segment,
    Text,
    VaeImage,
    VitImage,
    encode,
    pack,
    read_first,
)
from uni_train.models.base import Dropout, Example, ImageSizes, Turn

_PADDING, _PADDING_WIDE, _WIDE = 500, 100, 512
"""Token places that cost about as much as one more forward pass, of models narrower than _WIDE and of wider ones.
500 was measured for nano on a CPU; 100 follows a report at 100 million weights and is not measured here."""
_CACHED = 50_000  # texts and layouts
_GIVEN = -1  # in place of an image's index
_LONG = 512  # tokens; from here on GPUs take examples in one long row with a block mask

NoiseLevels = Literal["uniform", "logit_normal"]
Grid = tuple[int, int]


class Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class _Part:
    """One segment before its arrays are known: hashable, to cache layouts. `image`: its index, or _GIVEN."""

    kind: Literal["text", "vit", "vae"]
    text: str = ""
    image: int = 0
    grid: Grid = (0, 0)
    learn: bool = False
    dropped: bool = False


@dataclass(slots=True)
class _Draft:
    """An example, its random draws and its parts. vae_noise: of the images that are encoded, by their index."""

    example: Example
    generator: np.random.Generator
    parts: list[_Part]
    images: list[np.ndarray]
    vae_noise: dict[int, np.ndarray]


EncodedExample = tuple[Encoded, np.ndarray]
"""An example's arrays, and the flow noise of all its latent tokens, [tokens, C] (zeros where nothing is noised)."""


class ExamplePacker:
    """Examples to packed batches for one BAGEL with its VAE and tokenizer; the arguments are those of `BagelUnified`.

    Attributes:
        dropout: of the examples that draw an image. A plain example has one draw for all its texts; in one of `turns`
            every text has its own. A dropped image keeps its rope position, a dropped text leaves nothing behind.
    """

    def __init__(
        self,
        bagel: Bagel,
        vae: nn.Module,
        tokenizer: Tokenizer,
        think_system: str,
        noise_levels: NoiseLevels,
        vae_transform: ImageTransform,
        vit_transform: ImageTransform | None,
    ) -> None:
        self.bagel = bagel
        self.vae = vae
        self.tokenizer = tokenizer
        self.think_system = think_system
        self.noise_levels = noise_levels
        self.vae_transform, self.vit_transform = vae_transform, vit_transform
        self.dropout = Dropout()
        self._ids: dict[str, list[int]] = {}
        self._layouts: dict[tuple[_Part, ...], Encoded] = {}

    def pack(self, examples: Sequence[Example]) -> list[PackedBatch]:
        """A few batches: rows of like length, or on a GPU one long row if the examples are long."""
        drafts = [self._draft(example) for example in examples]
        rows = [self._row(draft, latents) for draft, latents in zip(drafts, self._latents(drafts), strict=True)]
        return self._batches(rows)

    def blank(self, examples: Sequence[Example], on: str | None = None) -> list[PackedBatch]:
        """What `pack` would return, with latents of zeros: no VAE is asked, and the model may be on the meta device.

        `on`: the kind of device whose layout is wanted; None: that of the weights, of which meta counts as a GPU.
        """
        rows = []
        for draft in [self._draft(example) for example in examples]:
            grids = self._encoded_grids(draft)
            zeros = {i: torch.zeros(h * w, self.bagel.config.latent_dim) for i, (h, w) in grids.items()}
            rows.append(self._row(draft, zeros))
        return self._batches(rows, on)

    def _batches(self, rows: Sequence[EncodedExample], on: str | None = None) -> list[PackedBatch]:
        tokens = sum(row.length for row, _ in rows)
        if (on or self.bagel.vae2llm.weight.device.type) != "cpu" and tokens >= _LONG * len(rows):
            return [self._batch([rows])]
        most = _PADDING if self.bagel.config.llm.hidden_size < _WIDE else _PADDING_WIDE
        return [self._batch([[rows[i]] for i in bucket]) for bucket in _buckets(rows, most)]

    def length(self, example: Example) -> int:
        """Tokens of an example of which nothing is dropped, markers included; without making any array."""
        parts = self._parts(example, self._turns(example), lambda share: False)
        texts = (len(self._encode_text(part.text)) for part in parts if part.kind == "text")
        return sum(texts) + sum(part.grid[0] * part.grid[1] for part in parts) + 2 * len(parts)

    def prefix(self, example: Example) -> bytes:
        """The texts of an example of which nothing is dropped, as `PackedBatch.prefixes`; empty where images are
        shown."""
        turns = self._turns(example)
        if any(turn.image is not None for turn in turns[:-1]):
            return b""
        texts = [Text(self._encode_text(turn.text)) for turn in turns if turn.text is not None]
        return read_first(encode(texts, self.bagel.config)) if texts else b""

    # --- what is shown and what is learned ---------------------------------------------------------------------

    def _turns(self, example: Example) -> list[Turn]:
        """The example as turns, without empty texts."""
        if example.turns:
            turns = list(example.turns)
        else:
            turns = [] if example.thought is None else [Turn(self.think_system)]
            turns += [Turn(image=image) for image in example.images]
            turns.append(Turn(example.prompt))
            if example.thought is not None:
                turns.append(Turn(example.thought, learn=example.learn_thought))
            if example.answer is not None:
                turns.append(Turn(example.answer, learn=True))
            if example.target is not None:
                turns.append(Turn(image=example.target, learn=True))
        return [turn for turn in turns if turn.image is not None or turn.text]

    def _draft(self, example: Example) -> _Draft:
        """All draws of an example but those of the noising, in an order that does not depend on other examples."""
        turns = self._turns(example)
        generator = np.random.default_rng(example.seed)
        images = [turn.image for turn in turns if turn.image is not None]
        draws = _draws(example, turns)
        grids = [self._grids(image, len(images), example.sizes) for image in images]
        noise: dict[int, np.ndarray] = {}
        if draws:
            channels, patch = self.bagel.config.latent_channels, self.bagel.config.latent_patch_size
            for i, ((h, w), _) in enumerate(grids):
                noise[i] = generator.standard_normal((channels, h * patch, w * patch), np.float32)

        def dropped(share: float) -> bool:
            """Draws a number only where it matters, but also for examples without an image to draw: half of a mixture
            keeps its numbers when the other half is changed."""
            return share > 0 and example.noise_level is None and bool(generator.random() < share) and draws

        return _Draft(example, generator, self._parts(example, turns, dropped), images, noise)

    def _parts(self, example: Example, turns: Sequence[Turn], dropped: Callable[[float], bool]) -> list[_Part]:
        """The segments that turns stand for. `dropped`: whether a condition is left out, by its share."""
        draws, images = _draws(example, turns), sum(turn.image is not None for turn in turns)
        bare = not example.turns and dropped(self.dropout.text)
        parts: list[_Part] = []
        index = -1
        for position, turn in enumerate(turns):
            if turn.image is None:
                if not (dropped(self.dropout.text) if example.turns else bare):
                    parts.append(_Part("text", text=turn.text or "", learn=turn.learn))
                continue
            index += 1
            vae, vit = self._grids(turn.image, images, example.sizes)
            parts += [_Part("vae", image=index, grid=vae, learn=True)] * example.noise_draws if turn.learn else []
            if not turn.learn or position + 1 < len(turns):
                if draws:
                    parts.append(_Part("vae", image=index, grid=vae, dropped=dropped(self.dropout.vae)))
                parts.append(_Part("vit", image=index, grid=vit, dropped=dropped(self.dropout.vit)))
        if example.states is not None:
            height, width = example.states.size
            grid = height // self._token_pixels, width // self._token_pixels
            parts += [_Part("vae", image=_GIVEN, grid=grid, learn=True)] * len(example.states.t)
        return parts

    def _layout(self, draft: _Draft) -> Encoded:
        """The example without its images, cached."""
        key = tuple(draft.parts)
        layout = self._layouts.get(key)
        if layout is None:
            layout = encode([self._segment(part) for part in draft.parts], self.bagel.config)
            if len(self._layouts) < _CACHED:
                self._layouts[key] = layout
        return layout

    def _row(self, draft: _Draft, latents: dict[int, Tensor]) -> EncodedExample:
        """The example's layout with its patches, latents, noise levels and noise put in."""
        config, generator = self.bagel.config, draft.generator
        encoded = self._layout(draft)
        patches: list[np.ndarray | None] = []
        of_images: list[Tensor] = []
        noised: list[bool] = []
        states = draft.example.states
        for part in (part for part in draft.parts if part.kind != "text" and not part.dropped):
            if part.kind == "vit":
                patches.append(self._patches(draft.images[part.image], part.grid))
            elif part.image == _GIVEN:
                assert states is not None
                given = states.clean[noised.count(True)][: part.grid[0] * part.grid[1]]
                of_images.append(torch.from_numpy(given))
                noised.append(True)
            else:
                of_images.append(latents[part.image])
                noised.append(part.learn)
        encoded = replace(encoded, vit_patches=tuple(patches), latents=tuple(of_images))
        noise = np.zeros((sum(len(latent) for latent in of_images), config.latent_dim), np.float32)
        filled = np.repeat(noised, [len(latent) for latent in of_images])
        if states is not None:
            encoded = encoded.with_noise_levels(train_logit(torch.from_numpy(states.t), config.timestep_shift).numpy())
            noise[filled] = states.noise[:, : filled.sum() // len(states.t)].reshape(-1, config.latent_dim)
        elif any(noised):
            encoded = encoded.with_noise_levels(self._levels(sum(noised), draft.example.noise_level, generator))
            noise[filled] = generator.standard_normal((int(filled.sum()), config.latent_dim), np.float32)
        return encoded, noise

    def _segment(self, part: _Part) -> Segment:
        if part.kind == "text":
            return Text(self._encode_text(part.text), loss=part.learn)
        if part.kind == "vit":
            return VitImage(part.grid, dropped=part.dropped)
        return VaeImage(part.grid, noised=part.learn, dropped=part.dropped)

    def _encode_text(self, text: str) -> list[int]:
        ids = self._ids.get(text)
        if ids is None:
            ids = list(self.tokenizer.encode(text))
            if len(self._ids) < _CACHED:
                self._ids[text] = ids
        return ids

    def _batch(self, rows: Sequence[Sequence[EncodedExample]]) -> PackedBatch:
        """One batch; each of `rows` is one row of it."""
        batch = pack([[encoded for encoded, _ in row] for row in rows], self.bagel.config)
        if batch.clean_BGC.shape[1]:
            noise = np.zeros(batch.clean_BGC.shape, np.float32)
            for i, row in enumerate(rows):
                drawn = np.concatenate([noise for _, noise in row])
                noise[i, : len(drawn)] = drawn
            batch.noise_BGC = torch.from_numpy(noise)
        return batch

    def _levels(self, draws: int, fixed: float | None, generator: np.random.Generator) -> np.ndarray:
        """Pre-sigmoid noise levels; the sigmoid of a logistic draw is uniform."""
        if fixed is not None:
            return train_logit(torch.full((draws,), fixed), self.bagel.config.timestep_shift).numpy()
        if self.noise_levels == "logit_normal":
            return generator.standard_normal(draws, np.float32)
        return generator.logistic(size=draws).astype(np.float32)

    # --- images ------------------------------------------------------------------------------------------------

    def _grids(self, image: np.ndarray, images: int, sizes: ImageSizes) -> tuple[Grid, Grid]:
        """Latent tokens and ViT patches (rows, columns) of one of `images` images."""
        height, width = image.shape[:2]
        vae_transform, vit_transform = self._transforms(sizes)
        vae = vae_transform.target_size(height, width)
        stride = self._token_pixels
        vit = (0, 0)
        if self.bagel.config.vit is not None and vit_transform is not None:
            patch = self.bagel.config.vit.patch_size
            seen = vit_transform.target_size(height, width, images)
            vit = seen[0] // patch, seen[1] // patch
        return (vae[0] // stride, vae[1] // stride), vit

    def _transforms(self, sizes: ImageSizes) -> tuple[ImageTransform, ImageTransform | None]:
        """Of the VAE and of the ViT, as far as the model has positions."""
        config, vae, vit = self.bagel.config, self.vae_transform, self.vit_transform
        if sizes.latents is not None:
            reach = config.max_latent_size * self._token_pixels
            vae = replace(vae, min_size=min(sizes.latents[0], reach), max_size=min(sizes.latents[1], reach))
        if vit is not None and config.vit is not None:
            if sizes.seen is not None:
                reach = config.vit_max_num_patch_per_side * config.vit.patch_size
                vit = replace(vit, min_size=min(sizes.seen[0], reach), max_size=min(sizes.seen[1], reach))
            if sizes.seen_pixels is not None:
                vit = replace(vit, max_pixels=sizes.seen_pixels)
        return vae, vit

    @property
    def _token_pixels(self) -> int:
        """Pixels a side of one latent token."""
        return int(self.vae.downsample) * self.bagel.config.latent_patch_size  # type: ignore[arg-type]

    @staticmethod
    def _encoded_grids(draft: _Draft) -> dict[int, Grid]:
        """Of the images that are needed as latents, by their index."""
        parts = (part for part in draft.parts if part.kind == "vae" and not part.dropped)
        return {part.image: part.grid for part in parts if part.image != _GIVEN}

    @torch.no_grad()
    def _latents(self, drafts: Sequence[_Draft]) -> list[dict[int, Tensor]]:
        """Clean latent tokens of the images of each draft that are needed, by their index."""
        needed = [(draft, i, grid) for draft in drafts for i, grid in self._encoded_grids(draft).items()]
        side = self._token_pixels
        images = [resized(draft.images[i], (grid[0] * side, grid[1] * side)) for draft, i, grid in needed]
        noise = [torch.from_numpy(draft.vae_noise[i]) for draft, i, _ in needed]
        tokens = iter(latent_tokens(self.vae, images, noise, self.bagel.config.latent_patch_size))
        return [{i: next(tokens) for i in self._encoded_grids(draft)} for draft in drafts]

    def _patches(self, image: np.ndarray, grid: Grid) -> np.ndarray:
        assert self.bagel.config.vit is not None
        patch = self.bagel.config.vit.patch_size
        return patches(resized(image, (grid[0] * patch, grid[1] * patch)), patch)


def _draws(example: Example, turns: Sequence[Turn]) -> bool:
    """Whether an image is to be drawn."""
    return example.states is not None or any(turn.image is not None and turn.learn for turn in turns)


def _buckets(rows: Sequence[EncodedExample], most: int) -> list[list[int]]:
    """Numbers of rows of like length together: padding costs time, but so does every further forward pass.

    Rows with equal numbers of latent tokens, sorted by length, are cut at least cost; a pass costs `most` empty places.
    """
    sizes = [(row.gen.shape[1], row.und.shape[1]) for row, _ in rows]
    buckets: list[list[int]] = []
    for _, alike in groupby(sorted(range(len(rows)), key=sizes.__getitem__), lambda i: sizes[i][0]):
        numbers = list(alike)
        before = [0, *accumulate(sizes[i][1] for i in numbers)]
        least: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # rows -> least cost, buckets' begins
        for end, (i, after) in enumerate(zip_longest(numbers, numbers[1:]), start=1):
            if after is None or sizes[after] != sizes[i]:  # rows of a length stay together
                least[end] = min(
                    (cost + most + (end - begin) * sizes[i][1] - before[end] + before[begin], [*begins, begin])
                    for begin, (cost, begins) in least.items()
                )
        buckets += [numbers[begin:end] for begin, end in pairwise([*least[len(numbers)][1], len(numbers)])]
    return buckets
