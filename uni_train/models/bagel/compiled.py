"""Text at static shapes, a step of which torch.compile makes one kernel launch (`model.compile`).

Keys and values have room for 256 tokens, or for twice as many as before. Masks and the next column are tensors, so a
token changes no shape: nothing is compiled again, and a GPU replays the step as a CUDA graph. Such a graph is recorded
for its addresses. So the memory is kept, for the next texts of as many rows.

Shapes: B rows, T columns of room; K key/value heads, d channels of a head; D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from uni_train.models.bagel.attention import prepare_bool
from uni_train.models.bagel.caches import KVCache
from uni_train.models.bagel.config import AttentionImpl, BagelConfig
from uni_train.models.bagel.mot import Decoder

LEAST_COLUMNS = 256


class StaticKeys:
    """Contexts at fixed addresses.

    Attributes:
        keys, values: per layer [B, K, T, d].
        valid: bool [B, T], the columns that count.
        rope: int64 [B], the rope position of what comes next.
        column: int64 [1], where it goes.
    """

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor], columns: int) -> None:
        rows, heads, _, channels = keys[0].shape
        device = keys[0].device
        with torch.inference_mode(False):  # else no_grad alone could not write to it
            self.keys, self.values = (
                [torch.zeros(rows, heads, columns, channels, dtype=x.dtype, device=device) for x in side]
                for side in (keys, values)
            )
            self.valid = torch.zeros(rows, columns, dtype=torch.bool, device=device)
            self.rope, self.column = (torch.zeros(n, dtype=torch.long, device=device) for n in (rows, 1))

    def fill(self, keys: Sequence[Tensor], values: Sequence[Tensor], valid_BN: Tensor, rope_B: Tensor) -> None:
        """Begin with the first N columns of these contexts."""
        n = valid_BN.shape[1]
        for mine, theirs in zip([*self.keys, *self.values], [*keys, *values], strict=True):
            mine[:, :, :n] = theirs[:, :, :n]
        self.valid.zero_()
        self.valid[:, :n] = valid_BN
        self.rope.copy_(rope_B)
        self.column.fill_(n)

    def extend(self, layer: int, k_BKLd: Tensor, v_BKLd: Tensor) -> tuple[Tensor, Tensor]:
        """Write one column; all of them, also those that do not count."""
        key, value = self.keys[layer], self.values[layer]
        return key.index_copy_(2, self.column, k_BKLd), value.index_copy_(2, self.column, v_BKLd)


class CompiledSteps:
    """The steps that `model.compile` makes, and the room of their texts (columns -> room)."""

    def __init__(self) -> None:
        self._kept: dict[int, StaticKeys] = {}

    @staticmethod
    @cache
    def compiled(function: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
        """The function by torch.compile, once a process; a size that changed is a symbol from then on."""
        return torch.compile(function, mode=mode)

    def text(self, decoder: Decoder, config: BagelConfig, cache: KVCache) -> CompiledText:
        """A text behind a context."""
        return CompiledText(self, decoder, config, cache)

    def room(self, keys: Sequence[Tensor], values: Sequence[Tensor], valid_BN: Tensor, rope_B: Tensor) -> StaticKeys:
        """Room for these contexts and at least a column more, from what was kept where that has it."""
        columns = LEAST_COLUMNS
        while columns <= valid_BN.shape[1]:
            columns *= 2
        like = (len(rope_B), rope_B.device, keys[0].dtype)
        if any((len(x.rope), x.rope.device, x.keys[0].dtype) != like for x in self._kept.values()):
            self._kept.clear()
        if columns not in self._kept:
            made = self._kept[columns] = StaticKeys(keys, values, columns)
            for tensor in (*made.keys, *made.values, made.valid, made.rope, made.column):
                torch._dynamo.mark_static_address(tensor, guard=False)
        self._kept[columns].fill(keys, values, valid_BN, rope_B)
        return self._kept[columns]


class CompiledText:
    """Text behind a context, a column at a time, by a compiled step."""

    def __init__(self, steps: CompiledSteps, decoder: Decoder, config: BagelConfig, cache: KVCache) -> None:
        self.steps, self.decoder, self.config, self.length = steps, decoder, config, cache.length
        self.room = steps.room(cache.keys, cache.values, cache.valid, cache.next_rope)

    def feed(self, ids_B1: Tensor, valid_B1: Tensor) -> Tensor:
        """Hidden states [B, 1, D] after the final norm."""
        if self.length == self.room.valid.shape[1]:
            full = self.room
            self.room = self.steps.room(full.keys, full.values, full.valid, full.rope)
        self.length += 1
        torch.compiler.cudagraph_mark_step_begin()
        step = self.steps.compiled(static_step, "reduce-overhead")
        return step(self.decoder, self.config.attention, self.room, ids_B1, valid_B1)  # type: ignore[no-any-return]

    def context(self) -> KVCache:
        room = self.room
        counted = KVCache(room.keys, room.values, room.valid[:, : self.length], room.rope)
        return counted.select(range(counted.rows))  # a copy: the next text writes over it


def static_step(decoder: Decoder, impl: AttentionImpl, room: StaticKeys, ids_B1: Tensor, valid_B1: Tensor) -> Tensor:
    """Put a token a row into the next column; hidden states [B, 1, D] after the final norm.

    A token that is not valid does not count, and moves no position.
    """
    x_B1D = decoder.embed_tokens(ids_B1)
    here_T = torch.arange(room.valid.shape[1], device=room.valid.device) == room.column
    attend = prepare_bool((room.valid | here_T)[:, None, None], impl, x_B1D.dtype)
    rope = room.rope[:, None]
    hidden, _ = decoder(x_B1D, x_B1D[:, :0], rope, rope[:, :0], attend, room)
    room.valid.logical_or_(here_T & valid_B1)
    room.rope.add_(valid_B1[:, 0])
    room.column.add_(1)
    return hidden
