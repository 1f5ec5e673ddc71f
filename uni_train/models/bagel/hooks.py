"""Forward hooks of a BAGEL that draws: shares of attention, influence of words, hidden states.

Hooks are put on the layers for one call and removed after it, so the model has no extra cost. Attention is never
materialised. Softmax weights sum to 1 over the keys. Add a value channel that is 1 for the keys of a group and 0
elsewhere. Its output is the group's share of attention:

    attend(q, k, [v | 1_group]) = [o | share of the group]

That works with any kernel, in one call. It keeps one number a query token and head instead of a row of weights.

Only the full context counts, not those that guidance adds: in passes of their own, or as further rows below.

Shapes: B rows, H heads, G latent tokens, T cached columns, L = T + 2 + G keys; C channels, S steps, N layers, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from uni_train.models.bagel.attention import EAGER_FORWARD_UP_TO, Attend
from uni_train.models.bagel.packing import Text, VaeImage
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Request

GROUPS = ("system", "image", "instruction", "thought", "refined", "markers", "itself")
"""What a key belongs to: the prompt of think mode; input images; the instruction P; the trace R_t and the refined
prompt R_p of the thought; the markers around them; the image that is drawn, with its own markers."""
_ITSELF = GROUPS.index("itself")
ANSWER_WORDS = 3  # of an answer that states are kept of
_MARKERS = 2  # understanding tokens of an image that is drawn


@dataclass(frozen=True, slots=True)
class Column:
    """A cached key: which of GROUPS it belongs to, and its token (-1: no text)."""

    group: int
    token: int = -1


@dataclass(frozen=True, slots=True)
class Attention:
    """Where the image tokens of some requests looked.

    Attributes:
        t: [S], the noise level of every step. shares: float32 [S, N, B, len(GROUPS)], means over heads and image
            tokens; they sum to 1. keys: [B, len(GROUPS)], how many keys a group has.
        columns: of every request. maps: for every request float32 [rows, columns of the latent grid, text columns];
            None: not asked for. They hold the mean weight over heads, layers and steps (Tang et al. 2023, arXiv
            2210.04885).
        places: of every request the columns that `maps` has.
    """

    t: Tensor
    shares: Tensor
    keys: Tensor
    columns: tuple[tuple[Column, ...], ...]
    maps: tuple[Tensor, ...] | None
    places: tuple[tuple[int, ...], ...]

    @property
    def weights(self) -> Tensor:
        """float32 [S, N, B, len(GROUPS)]: the mean weight of a key of each group, equation 6 of UReason (Yang et al.
        2026, arXiv 2602.08336); 0 for a group without keys."""
        return self.shares / self.keys.clamp_min(1)


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """Hidden states behind every layer, float32.

    Attributes:
        answer: [A, N, B, D], of the marker behind which an answer begins, and of the answer's words: the k-th is where
            the model chooses its word k, from 0.
        word: [N, B, D], of the last word of the question.
        marker: [K, N, B, D], of the marker behind which an image begins, at K noise levels `t`.
        image: [K, N, B, D], the mean of the image's own tokens.
    """

    answer: Tensor
    word: Tensor
    marker: Tensor
    image: Tensor
    t: tuple[float, ...]


def columns_of(model: BagelUnified, requests: Sequence[Request], refined: Sequence[int | None]) -> list[list[Column]]:
    """What each cached column of a request is, in the order of the cache: understanding tokens, then latents.

    Args:
        refined: for each request, at which letter of its thought the refined prompt begins; None: it has none. A token
            that holds letters of both counts as trace.
    """
    columns = []
    for request, start, (segments, _, _) in zip(requests, refined, model._contexts(requests, think=False), strict=True):
        texts = iter(["system", "instruction", "thought"] if request.thought is not None else ["instruction"])
        und: list[Column] = []
        gen: list[Column] = []
        mark = Column(GROUPS.index("markers"))
        for segment in segments:
            if isinstance(segment, Text):
                group = GROUPS.index(next(texts))
                inner = [Column(group, token) for token in segment.ids]
                if GROUPS[group] == "thought" and start is not None:
                    trace = len(model.tokenizer.encode((request.thought or "")[:start]))
                    inner[trace:] = [Column(GROUPS.index("refined"), token) for token in segment.ids[trace:]]
                und += [mark, *inner, mark]
            else:
                tokens = [Column(GROUPS.index("image"))] * (segment.grid[0] * segment.grid[1])
                und += [mark, mark] if isinstance(segment, VaeImage) else [mark, *tokens, mark]
                gen += tokens if isinstance(segment, VaeImage) else []
        columns.append((und, gen))
    widest = max((len(und) for und, _ in columns), default=0)
    return [[*und, *[Column(-1)] * (widest - len(und) if gen else 0), *gen] for und, gen in columns]


def draw_with_attention(
    model: BagelUnified,
    requests: Sequence[Request],
    refined: Sequence[int | None],
    *,
    maps: bool = False,
    layers: Sequence[int] | None = None,
) -> tuple[list[np.ndarray], Attention]:
    """`model.draw`, and where its image tokens look.

    Args:
        requests: all with input images, or all without.
        refined: as for `columns_of`.
        maps: also the influence of every text token on every place: a channel a token, for a few requests at a time.
        layers: which are watched, from 0; None: all.

    Raises:
        IndexError: a layer that there is not.
    """
    columns = columns_of(model, requests, refined)
    grids = [model.grid(model.picture_size(request)) for request in requests]
    watch = _AttentionWatch(model, columns, grids, maps)
    every: list[Any] = list(model.bagel.language_model.model.layers)
    watched = every if layers is None else [every[index] for index in layers]
    handles = [layer.self_attn.register_forward_pre_hook(watch.before) for layer in watched]
    with _removed([*handles, model.bagel.time_embedder.register_forward_pre_hook(watch.at)]):
        images = model.draw(requests)
    return images, watch.result()


def states_of(model: BagelUnified, requests: Sequence[Request], levels: Sequence[int] | None = None) -> HiddenStates:
    """The states of these positions while the model answers and draws the same requests (without thoughts).

    Args:
        requests: without input images. levels: the steps of drawing that are kept; None: first, middle and last.
    """
    steps = model.sampling.steps
    kept = levels if levels is not None else sorted({0, steps // 2, steps - 1})
    watch = _StateWatch(len(requests), kept)
    last = torch.tensor([len(row) - 2 for row in columns_of(model, requests, [None] * len(requests))])  # before eos
    handles = [layer.register_forward_hook(watch.behind) for layer in model.bagel.language_model.model.layers]
    with _removed([*handles, model.bagel.time_embedder.register_forward_pre_hook(watch.at)]):
        model.draw(requests)
        watch.answering = True
        model.answer(requests)
    return watch.result(last)


class _Steps:
    """Tells the pass under the full context from the others by the noise level: the first pass at each counts."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.drawing = False

    def at(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        (t,) = args[0].flatten()[:1].tolist()
        self.drawing = t > 0 and (not self.times or self.times[-1] != t)
        if self.drawing:
            self.times.append(t)


class _AttentionWatch(_Steps):
    def __init__(
        self, model: BagelUnified, columns: list[list[Column]], grids: Sequence[tuple[int, int]], maps: bool
    ) -> None:
        super().__init__()
        self.columns, self.grids = columns, grids
        self.device, self.dtype = model.device, model.bagel.dtype
        self.places = [[i for i, state in enumerate(row) if state.token >= 0] for row in columns] if maps else []
        widest = max(len(row) for row in columns)
        self.groups_BT = torch.tensor([[state.group for state in row] + [-1] * (widest - len(row)) for row in columns])
        self.tokens_B = torch.tensor([h * w for h, w in grids])
        self.valid_BQ = torch.arange(-_MARKERS, int(self.tokens_B.max())).expand(len(grids), -1)
        self.valid_BQ = (self.valid_BQ >= 0) & (self.valid_BQ < self.tokens_B[:, None])
        self.valid_BQ = self.valid_BQ.to(self.device, self.dtype)
        self.shares: list[list[Tensor]] = []
        self.maps: Tensor | None = None
        self.passes = 0
        self.channels: Tensor | None = None
        self.wide: dict[str, Tensor] = {}  # one layer's heads and what is beside them, written anew by every layer

    def before(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Put the channels into the attention of a layer, while the image is drawn under its full context."""
        x_BUD, x_BGD, rope, attend, cache, layer = args
        if not self.drawing or not x_BGD.shape[1]:
            return None
        return x_BUD, x_BGD, rope, partial(self._attend, attend), cache, layer

    def _attend(self, attend: Attend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.channels is None:
            self.channels = self._made(k.shape[2])
        d, own = v.shape[-1], self.channels.shape[-1]
        wide = self._widened("v", v, own)
        if q.device.type == "cpu" and (q.dtype != torch.float32 or k.shape[2] > EAGER_FORWARD_UP_TO):
            # The fused CPU kernel wants heads of one width; zeros change no score.
            q, k = self._widened("q", q * ((d + own) / d) ** 0.5, own), self._widened("k", k, own)
        out = attend(q, k, wide)
        self._add(out[: len(self.columns)], d)
        return out[..., :d]

    def _widened(self, name: str, heads: Tensor, own: int) -> Tensor:
        """Heads with the channels beside them (values), or zeros; rows of unconditional contexts belong to no group."""
        shape = (*heads.shape[:-1], heads.shape[-1] + own)
        if name not in self.wide or self.wide[name].shape != shape:
            self.wide[name] = heads.new_zeros(shape)
            if name == "v" and self.channels is not None:
                self.wide[name][: len(self.channels), ..., heads.shape[-1] :] = self.channels
        self.wide[name][..., : heads.shape[-1]] = heads
        return self.wide[name]

    def _made(self, keys: int) -> Tensor:
        """[B, 1, L, C]: for each key its group, then (for maps) one channel a text column, padded to eights."""
        context = keys - self.valid_BQ.shape[-1]
        used = len(GROUPS) + max((len(row) for row in self.places), default=0)
        if self.groups_BT.shape[1] > context:
            raise ValueError(f"{self.groups_BT.shape[1]} columns described, but the context has {context}")
        made = torch.zeros(len(self.columns), 1, keys, -(-used // 8) * 8)
        made[:, 0, : self.groups_BT.shape[1], : len(GROUPS)] = self._of_groups()
        made[:, :, context:, _ITSELF] = 1
        for row, columns in enumerate(self.places):
            made[row, 0, columns, list(range(len(GROUPS), len(GROUPS) + len(columns)))] = 1
        return made.to(self.device, self.dtype)

    def _of_groups(self) -> Tensor:
        """float32 [B, T, len(GROUPS)]: 1 where a cached column belongs to a group; padding belongs to none."""
        return F.one_hot(self.groups_BT.clamp_min(0), len(GROUPS)).float() * (self.groups_BT >= 0)[..., None]

    def _add(self, out_BHQC: Tensor, d: int) -> None:
        """Sums over heads and image tokens, as one product that reads the output where it lies; divided at the end."""
        if len(self.shares) < len(self.times):
            self.shares.append([])
        rows, heads = out_BHQC.shape[:2]
        valid, lying = self.valid_BQ[:, None].expand(-1, heads, -1), out_BHQC
        if not lying.is_contiguous():  # fused kernels put heads behind tokens
            valid, lying = self.valid_BQ[..., None].expand(-1, -1, heads), out_BHQC.transpose(1, 2)
        summed = valid.reshape(rows, 1, -1) @ lying.reshape(rows, -1, lying.shape[-1])
        self.shares[-1].append(summed[:, 0, d : d + len(GROUPS)] / heads)
        self.passes += 1
        if self.places:
            text = out_BHQC[:, :, _MARKERS:, d + len(GROUPS) :].mean(1, dtype=torch.float32)
            self.maps = text if self.maps is None else self.maps.add_(text)

    def result(self) -> Attention:
        keys = self._of_groups().sum(1)
        keys[:, _ITSELF] = torch.tensor([h * w + _MARKERS for h, w in self.grids])
        maps = None
        if self.maps is not None:
            mean = (self.maps / self.passes).cpu()
            maps = tuple(
                mean[row, : h * w, : len(self.places[row])].view(h, w, -1) for row, (h, w) in enumerate(self.grids)
            )
        return Attention(
            torch.tensor(self.times),
            torch.stack([torch.stack(layers) for layers in self.shares]).float().cpu() / self.tokens_B[:, None],
            keys,
            tuple(tuple(row) for row in self.columns),
            maps,
            tuple(tuple(row) for row in self.places),
        )


class _StateWatch(_Steps):
    def __init__(self, rows: int, levels: Sequence[int]) -> None:
        super().__init__()
        self.rows, self.levels = rows, levels
        self.answering = False
        self.read: list[Tensor] = []
        self.answered: list[list[Tensor]] = []
        self.marker: dict[int, list[Tensor]] = {}
        self.image: dict[int, list[Tensor]] = {}

    def behind(self, module: nn.Module, args: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what is wanted of a layer's output."""
        x_BUD, x_BGD = output
        index = int(module.index)  # type: ignore[arg-type]
        step = len(self.times) - 1
        if self.answering:
            if x_BUD.shape[1] == 1:
                self.answered += [[]] if index == 0 else []
                if len(self.answered) <= ANSWER_WORDS:
                    self.answered[-1].append(x_BUD[:, 0].float())
        elif self.drawing and step in self.levels:
            self.marker.setdefault(step, []).append(x_BUD[: self.rows, 0].float())
            self.image.setdefault(step, []).append(x_BGD[: self.rows].float().mean(1))
        elif not self.times and len(self.read) == index:
            self.read.append(x_BUD.float())

    def result(self, last: Tensor) -> HiddenStates:
        rows = torch.arange(len(last))
        steps = sorted(self.marker)
        return HiddenStates(
            torch.stack([torch.stack(layers) for layers in self.answered[:ANSWER_WORDS]]).cpu(),
            torch.stack([layer.cpu()[rows, last] for layer in self.read]),
            torch.stack([torch.stack(self.marker[step]) for step in steps]).cpu(),
            torch.stack([torch.stack(self.image[step]) for step in steps]).cpu(),
            tuple(self.times[step] for step in steps),
        )


@contextmanager
def _removed(handles: Sequence[RemovableHandle]) -> Iterator[None]:
    """Within it these hooks are there."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
