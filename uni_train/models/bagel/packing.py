"""From segments of text and images to the tensors of a training batch or a prompt.

A *sample* is a list of segments; a *row* holds one or more samples that do not see each other. The official packed
form is one row with many samples; small models use many rows with one sample each. Both come out of `pack`.

Rules (BAGEL): a text is bos + ids + eos, an image start + patches + end; the markers of every image are understanding
tokens. Rope: one position per text token, one per image; a noised target does not advance it, a dropped image
condition does, dropped text does not. A loss text is supervised at the positions bos .. last id (labels ids + eos);
the last position of a segment is supervised only with `end_label`. No other token sees a noised image, and it does not
advance the position. So a sample may hold any number of noised copies after one text.

`encode` turns a sample into arrays once; `pack` only concatenates and adds offsets, so callers that see a sample
again should keep its encoded form. Clean latents and noise levels can be exchanged with `Encoded.with_noise_levels` and
`dataclasses.replace`.

Shapes: B rows, U understanding tokens, G generation tokens, N ViT patches, I VAE images, C numbers per latent token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uni_train.models.bagel.config import BagelConfig
from uni_train.models.bagel.masks import TokenMask, concatenate
from uni_train.models.bagel.positions import grid_position_ids
from uni_train.models.transfer import upload

NO_LABEL = -100


@dataclass(frozen=True, slots=True)
class Text:
    """Token ids without markers. `loss`: learn to write it. `end_label`: what to predict after eos, if anything."""

    ids: Sequence[int]
    loss: bool = False
    end_label: int | None = None


@dataclass(frozen=True, slots=True)
class VitImage:
    """An image to be understood.

    Attributes:
        grid: patches (rows, columns).
        patches: float32 [rows * columns, p*p*3] as from `patchify`, pixels in [-1, 1].
        dropped: leave it out, but count its rope position (condition dropout).
        end_label: what to predict after the end marker.
    """

    grid: tuple[int, int]
    patches: np.ndarray | None = None
    dropped: bool = False
    end_label: int | None = None


@dataclass(frozen=True, slots=True)
class VaeImage:
    """An image as latents: a clean condition, or a noised target to be learned.

    Attributes:
        grid: latent tokens (rows, columns).
        latent: float32 [rows * columns, C], clean, on any device; None if the batch's `clean_BGC` is filled later.
        noised: a target: noised, with velocity loss, seen by nobody else.
        logit: pre-sigmoid noise level of a target; ignored for a condition.
    """

    grid: tuple[int, int]
    latent: Tensor | None = None
    noised: bool = False
    logit: float = 0.0
    dropped: bool = False
    end_label: int | None = None


Segment = Text | VitImage | VaeImage

_ID, _ROPE, _ORDER, _REACH, _NOISE, _LABEL = range(6)
"""Columns of `Encoded.und`; `Encoded.gen` has the grid position in the first and the image number in the last."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One sample as arrays; all numbers relative to the sample.

    Attributes:
        und: int32 [6, tokens]: id, rope, order, reach, noise, label (NO_LABEL where not supervised).
        gen: int32 [6, tokens]: grid position, rope, order, reach, noise, image number.
        ce_weight: float32 [understanding tokens].
        vit_slot: understanding tokens that ViT patches replace; vit_position, vit_patches: theirs, concatenated.
        logits: float32 [images], -inf for a clean one; latents: one tensor or None per image.
        next_rope: the position of what would follow.
        split_lengths, split_modes: every segment's length and "causal" | "full" | "noise".
    """

    und: np.ndarray
    gen: np.ndarray
    ce_weight: np.ndarray
    vit_slot: np.ndarray
    vit_position: np.ndarray
    vit_patches: tuple[np.ndarray | None, ...]
    vit_lengths: tuple[int, ...]
    logits: np.ndarray
    latents: tuple[Tensor | None, ...]
    latent_grids: tuple[tuple[int, int], ...]
    next_rope: int
    split_lengths: tuple[int, ...]
    split_modes: tuple[str, ...]

    @property
    def length(self) -> int:
        """Tokens of both kinds."""
        return self.und.shape[1] + self.gen.shape[1]

    def with_noise_levels(self, logits: Sequence[float] | np.ndarray) -> Encoded:
        """The same sample with new pre-sigmoid noise levels for its targets, in order."""
        new = self.logits.copy()
        new[np.isfinite(new)] = logits
        return replace(self, logits=new)


def encode(segments: Sequence[Segment], config: BagelConfig) -> Encoded:
    """Arrays of one sample.

    Raises:
        ValueError: an image does not fit the position tables, or its array does not fit its grid.
    """
    marks = config.tokens
    und: list[list[int]] = [[], [], [], [], [], []]
    gen: list[np.ndarray] = []
    weight: list[float] = []
    vit_slot: list[np.ndarray] = []
    vit_position: list[np.ndarray] = []
    patches: list[np.ndarray | None] = []
    logits: list[float] = []
    latents: list[Tensor | None] = []
    grids: list[tuple[int, int]] = []
    lengths: list[int] = []
    modes: list[str] = []
    rope = order = 0

    def add(
        ids: Sequence[int], ropes: Sequence[int], orders: Sequence[int], reaches: Sequence[int], noise: int
    ) -> None:
        n = len(ids)
        for column, values in zip(und, (ids, ropes, orders, reaches, [noise] * n, [NO_LABEL] * n), strict=True):
            column.extend(values)
        weight.extend([0.0] * n)

    for segment in segments:
        if isinstance(segment, Text):
            ids = [marks.bos, *segment.ids, marks.eos]
            n = len(ids)
            span = range(order, order + n)
            add(ids, range(rope, rope + n), span, span, 0)
            if segment.loss:
                und[_LABEL][-n:-1] = ids[1:]
                weight[-n:-1] = [(n - 1) ** -0.5] * (n - 1)
            rope += n
            mode = "causal"
        else:
            if segment.dropped:
                rope += 1
                continue
            h, w = segment.grid
            n = h * w + 2
            last = order + n - 1
            noised = isinstance(segment, VaeImage) and segment.noised
            noise = order + 1 if noised else 0
            if isinstance(segment, VitImage):
                _check(segment.patches, (h * w, None), "patches of a ViT image")
                slot = len(und[_ID]) + 1
                vit_slot.append(np.arange(slot, slot + h * w))
                vit_position.append(grid_position_ids(h, w, config.vit_max_num_patch_per_side).numpy())
                patches.append(segment.patches)
                ids = [marks.start_of_image, *([marks.end_of_image] * (n - 1))]  # ids under patches are not looked up
                add(ids, [rope] * n, range(order, order + n), [last] * n, 0)
            else:
                _check(segment.latent, (h * w, config.latent_dim), "latent of a VAE image")
                add([marks.start_of_image, marks.end_of_image], [rope] * 2, [order, last], [last] * 2, noise)
                block = np.empty((6, h * w), np.int32)
                block[_ID] = grid_position_ids(h, w, config.max_latent_size).numpy()
                block[_ORDER] = np.arange(order + 1, last)
                for column, value in ((_ROPE, rope), (_REACH, last), (_NOISE, noise), (_LABEL, len(logits))):
                    block[column] = value
                gen.append(block)
                logits.append(segment.logit if noised else -np.inf)
                latents.append(segment.latent)
                grids.append(segment.grid)
            rope += 0 if noised else 1
            mode = "noise" if noised else "full"
        if segment.end_label is not None:
            und[_LABEL][-1] = segment.end_label
            weight[-1] = 1.0
        order += n
        lengths.append(n)
        modes.append(mode)

    return Encoded(
        und=np.array(und, np.int32),
        gen=np.concatenate(gen, axis=1) if gen else np.empty((6, 0), np.int32),
        ce_weight=np.array(weight, np.float32),
        vit_slot=np.concatenate(vit_slot) if vit_slot else np.empty(0, np.int64),
        vit_position=np.concatenate(vit_position) if vit_position else np.empty(0, np.int64),
        vit_patches=tuple(patches),
        vit_lengths=tuple(len(slot) for slot in vit_slot),
        logits=np.array(logits, np.float32),
        latents=tuple(latents),
        latent_grids=tuple(grids),
        next_rope=rope,
        split_lengths=tuple(lengths),
        split_modes=tuple(modes),
    )


def _check(array: np.ndarray | Tensor | None, shape: tuple[int, int | None], what: str) -> None:
    if array is None:
        return
    if array.ndim != 2 or array.shape[0] != shape[0] or shape[1] not in (None, array.shape[1]):
        wanted = f"[{shape[0]}, {'...' if shape[1] is None else shape[1]}]"
        raise ValueError(f"{what} have shape {list(array.shape)}, but their grid asks for {wanted}")


@dataclass(slots=True)
class PackedBatch:
    """The tensors of a batch. Indexes into flattened [B*U] or [B*G] are int64; padding is at the end of every row.

    Attributes:
        und_id, und_rope: [B, U]; und_mask, gen_mask: who sees whom.
        gen_position, gen_rope: [B, G]; gen_image: [B, G] index into the I images (0 in padding).
        clean_BGC: float32 clean latents; noise_BGC: float32 noise (None: drawn in the forward pass).
        logit: float32 [I], pre-sigmoid noise level, -inf for clean images.
        ce_index, ce_label, ce_weight: the supervised understanding tokens, in order of rows.
        mse_index: the noised generation tokens.
        vit_index: [N] where ViT patches go; vit_patches [N, p*p*3]; vit_position [N]; vit_lengths: patches per image.
        latent_grids: grid of every VAE image; next_rope: [B], of the last sample of the row.
        und_valid, gen_valid: bool, False in padding; full: there is none.
        sample_lengths: per row the lengths of its samples.
        prefix_split: columns of und_id, int64 [B, .]: the prefix, which no latent token reaches (text, ViT images,
            padding), and the markers of noised images. None: there are clean latents, or rows with unequal numbers of
            markers.
        prefixes: per row the text of each of its samples, as `PrefixStore` takes it. None: there is no `prefix_split`,
            or no text in its prefix, or a ViT image.
    """

    und_id: Tensor
    und_rope: Tensor
    und_mask: TokenMask
    und_valid: Tensor
    gen_position: Tensor
    gen_rope: Tensor
    gen_image: Tensor
    gen_mask: TokenMask
    gen_valid: Tensor
    full: bool
    clean_BGC: Tensor
    noise_BGC: Tensor | None
    logit: Tensor
    ce_index: Tensor
    ce_label: Tensor
    ce_weight: Tensor
    mse_index: Tensor
    vit_index: Tensor
    vit_patches: Tensor
    vit_position: Tensor
    vit_lengths: tuple[int, ...]
    latent_grids: tuple[tuple[int, int], ...]
    next_rope: Tensor
    sample_lengths: tuple[tuple[int, ...], ...]
    prefix_split: tuple[Tensor, Tensor] | None
    prefixes: tuple[tuple[bytes, ...], ...] | None

    @property
    def rows(self) -> int:
        return self.und_id.shape[0]

    @property
    def mask(self) -> TokenMask:
        """Of [understanding | generation]."""
        return concatenate(self.und_mask, self.gen_mask)

    def by_image(self, values: Tensor) -> Tensor:
        """[noised images], in order of rows: the mean over each image's tokens of values [noised tokens]."""
        images = self.gen_image.flatten()[self.mse_index]
        _, image, tokens = images.unique_consecutive(return_inverse=True, return_counts=True)
        return values.new_zeros(len(tokens)).index_add(0, image, values) / tokens

    def to(self, device: torch.device | str) -> PackedBatch:
        """The batch on `device`, without waiting for it."""
        values: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, TokenMask):
                value = TokenMask(*(upload(getattr(value, g.name), device) for g in fields(value)))
            elif f.name == "prefix_split" and value is not None:
                value = tuple(upload(columns, device) for columns in value)
            elif isinstance(value, Tensor):
                value = upload(value, device)
            values[f.name] = value
        return PackedBatch(**values)


def pack(rows: Sequence[Sequence[Encoded]], config: BagelConfig) -> PackedBatch:
    """Put encoded samples into the tensors of a batch: each row holds its samples one after the other, then padding.

    Flow noise is left to the caller, or to the forward pass.
    """
    flat = [sample for row in rows for sample in row]
    per_row = np.array([len(row) for row in rows])
    first = np.concatenate([[0], np.cumsum(per_row)])
    row_of = np.repeat(np.arange(len(rows)), per_row)
    und_count = np.array([s.und.shape[1] for s in flat], np.int64)
    gen_count = np.array([s.gen.shape[1] for s in flat], np.int64)
    und_offset, und_total = _offsets(und_count, first, row_of)
    gen_offset, gen_total = _offsets(gen_count, first, row_of)
    order_offset, order_total = und_offset + gen_offset, und_total + gen_total
    B, U, G = len(rows), int(und_total.max(initial=0)), int(gen_total.max(initial=0))

    und = _place([s.und for s in flat], und_count, row_of * U + und_offset, order_offset, B * U, NO_LABEL)
    gen = _place([s.gen for s in flat], gen_count, row_of * G + gen_offset, order_offset, B * G, 0)
    und_valid = np.arange(U) < und_total[:, None]
    gen_valid = np.arange(G) < gen_total[:, None]
    _number_padding(und, und_valid, order_total, order_total)
    _number_padding(gen, gen_valid, order_total, order_total + U - und_total)

    images = np.array([len(s.logits) for s in flat], np.int64)
    image_offset = np.cumsum(images) - images
    gen_where = _where(gen_count, row_of * G + gen_offset)
    gen[_LABEL, gen_where] += np.repeat(image_offset, gen_count).astype(np.int32)
    logit = np.concatenate([s.logits for s in flat]) if flat else np.empty(0, np.float32)

    clean = torch.zeros(B * G, config.latent_dim)
    latents = [latent for s in flat for latent in s.latents if latent is not None]
    if latents and len(latents) == sum(len(s.latents) for s in flat):
        device = next((x.device for x in latents if x.device.type != "cpu"), clean.device)  # of those not given
        there = torch.cat([upload(latent, device) for latent in latents])
        where = upload(torch.from_numpy(gen_where), there.device)
        clean = there.new_zeros(clean.shape).index_copy(0, where, there)
    und_where = _where(und_count, row_of * U + und_offset)
    weight = np.zeros(B * U, np.float32)
    weight[und_where] = np.concatenate([s.ce_weight for s in flat])
    label = und[_LABEL]
    ce_index = np.flatnonzero(label != NO_LABEL)
    noisy = np.isfinite(logit)
    mse_index = gen_where[noisy[gen[_LABEL, gen_where]]]

    vit_count = np.array([len(s.vit_slot) for s in flat], np.int64)
    vit_slots = np.concatenate([s.vit_slot for s in flat]) + np.repeat(row_of * U + und_offset, vit_count)
    all_patches = [array for s in flat for array in s.vit_patches]
    known = [array for array in all_patches if array is not None]
    if len(known) != len(all_patches):
        known = []
    patch_dim = config.vit.patch_dim if config.vit else 0
    vit_patches = np.concatenate(known) if known else np.empty((0, patch_dim), np.float32)
    last = first[1:] - 1

    def tensor(array: np.ndarray, length: int, dtype: Any = np.int64) -> Tensor:
        return torch.from_numpy(array.astype(dtype, copy=True)).view(B, length)

    def mask(table: np.ndarray, start: np.ndarray, length: int) -> TokenMask:
        parts = (table[_ORDER], start, table[_REACH], table[_NOISE])
        return TokenMask(*(tensor(part, length, np.int32) for part in parts))

    starts = np.repeat(order_total, U).astype(np.int32)
    starts[und_where] = np.repeat(order_offset, und_count)
    gen_starts = np.repeat(order_total, G).astype(np.int32)
    gen_starts[gen_where] = np.repeat(order_offset, gen_count)
    prefix_split = _prefix_split(und[_NOISE].reshape(B, U) > 0) if len(logit) and noisy.all() else None
    prefixes = None
    if prefix_split is not None and not all_patches:
        texts = tuple(tuple(map(read_first, row)) for row in rows)
        prefixes = texts if any(map(any, texts)) else None
    return PackedBatch(
        und_id=tensor(und[_ID], U),
        und_rope=tensor(und[_ROPE], U),
        und_mask=mask(und, starts, U),
        und_valid=torch.from_numpy(und_valid),
        gen_position=tensor(gen[_ID], G),
        gen_rope=tensor(gen[_ROPE], G),
        gen_image=tensor(gen[_LABEL], G),
        gen_mask=mask(gen, gen_starts, G),
        gen_valid=torch.from_numpy(gen_valid),
        full=bool(und_valid.all() and gen_valid.all()),
        clean_BGC=clean.view(B, G, config.latent_dim),
        noise_BGC=None,
        logit=torch.from_numpy(logit.astype(np.float32)),
        ce_index=torch.from_numpy(ce_index),
        ce_label=torch.from_numpy(label[ce_index].astype(np.int64)),
        ce_weight=torch.from_numpy(weight[ce_index]),
        mse_index=torch.from_numpy(mse_index),
        vit_index=torch.from_numpy(vit_slots.astype(np.int64)),
        vit_patches=torch.from_numpy(vit_patches.astype(np.float32, copy=False)),
        vit_position=torch.from_numpy(np.concatenate([s.vit_position for s in flat])),
        vit_lengths=tuple(n for s in flat for n in s.vit_lengths),
        latent_grids=tuple(grid for s in flat for grid in s.latent_grids),
        next_rope=torch.tensor([flat[i].next_rope if n else 0 for i, n in zip(last, per_row, strict=True)]),
        sample_lengths=tuple(tuple(s.length for s in row) for row in rows),
        prefix_split=prefix_split,
        prefixes=prefixes,
    )


def read_first(sample: Encoded) -> bytes:
    """Ids and rope positions of a sample's text, int32 [2, T]: of its understanding tokens that no latent reaches."""
    return sample.und[:_ORDER, sample.und[_NOISE] == 0].tobytes()


def _prefix_split(marker_BU: np.ndarray) -> tuple[Tensor, Tensor] | None:
    """See `PackedBatch.prefix_split`; marker_BU: whether a token is the marker of a noised image."""
    markers = marker_BU.sum(1)
    rest = marker_BU.shape[1] - int(markers[0])
    if (markers != markers[0]).any():
        return None
    columns = torch.from_numpy(np.argsort(marker_BU, axis=1, kind="stable"))
    return columns[:, :rest], columns[:, rest:]


def _offsets(count: np.ndarray, first: np.ndarray, row_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each sample begins in its row, and the tokens of every row."""
    ends = np.concatenate([[0], np.cumsum(count)])
    return ends[:-1] - ends[first[:-1]][row_of], ends[first[1:]] - ends[first[:-1]]


def _where(count: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Flat index of every token: ``begin[s] + 0 .. count[s] - 1`` for all samples s."""
    ends = np.cumsum(count)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begin - (ends - count), count)


def _place(
    tables: list[np.ndarray], count: np.ndarray, begin: np.ndarray, order_offset: np.ndarray, total: int, label: int
) -> np.ndarray:
    """Columns of all samples at their places in a [6, total], with order, reach and noise counted per row."""
    out = np.zeros((6, total), np.int32)
    out[_LABEL] = label
    if not tables:
        return out
    table = np.concatenate(tables, axis=1)
    shift = np.repeat(order_offset, count).astype(np.int32)
    table[_ORDER] += shift
    table[_REACH] += shift
    table[_NOISE] += shift * (table[_NOISE] > 0)
    out[:, _where(count, begin)] = table
    return out


def _number_padding(table: np.ndarray, valid: np.ndarray, order_total: np.ndarray, begin: np.ndarray) -> None:
    """Padding is one more causal sample behind the row: its tokens see only padding, so no softmax is ever empty."""
    pad = ~valid
    order = (np.cumsum(pad, axis=1) - 1 + begin[:, None])[pad]
    flat = pad.reshape(-1)
    table[_ORDER, flat] = order
    table[_REACH, flat] = order
