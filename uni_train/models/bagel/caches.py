"""What a model has read: keys and values of every layer.

Caches are values: every function returns a new one and leaves its argument usable, so one context can be continued in
several ways.

Shapes: B rows, T cached tokens, Q new tokens; K key/value heads, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from uni_train.models.bagel.config import BagelConfig
from uni_train.models.transfer import upload


class KVCache:
    """Keys (after norm and rope) and values of every layer, for rows of different lengths.

    Attributes:
        keys, values: per layer [B, K, capacity, d], of which the first `length` columns count.
        valid: bool [B, length]; rows with shorter contexts have holes.
        next_rope: int64 [B], the rope position of what comes next.
        full: whether it is known that no row has holes; attention then needs no mask.
    """

    def __init__(
        self, keys: list[Tensor], values: list[Tensor], valid: Tensor, next_rope: Tensor, full: bool = False
    ) -> None:
        self.keys, self.values, self.valid, self.next_rope, self.full = keys, values, valid, next_rope, full

    @classmethod
    def empty(
        cls, config: BagelConfig, rows: int, dtype: torch.dtype, device: torch.device | str, length: int = 0
    ) -> KVCache:
        """A context without tokens, position 0; or of `length` tokens whose numbers nobody reads."""
        llm = config.llm
        shape, layers = (rows, llm.num_key_value_heads, length, llm.head_dim), range(llm.num_hidden_layers)
        keys, values = ([torch.empty(shape, dtype=dtype, device=device) for _ in layers] for _ in range(2))
        valid = torch.empty((rows, length), dtype=torch.bool, device=device)
        return cls(keys, values, valid, torch.zeros(rows, dtype=torch.long, device=device), full=not length)

    @property
    def rows(self) -> int:
        return self.valid.shape[0]

    @property
    def length(self) -> int:
        return self.valid.shape[1]

    def select(self, rows: Sequence[int] | Tensor) -> KVCache:
        """The given rows, in that order; a row may appear several times (one context, several candidates)."""
        index = upload(torch.as_tensor(rows, dtype=torch.long), self.valid.device)
        n = self.length
        return KVCache(
            [key[:, :, :n].index_select(0, index) for key in self.keys],
            [value[:, :, :n].index_select(0, index) for value in self.values],
            self.valid.index_select(0, index),
            self.next_rope.index_select(0, index),
            self.full,
        )

    def first(self, length: int, full: bool) -> KVCache:
        """Only the first columns; `full`: no row has holes there."""
        keys, values = ([x[:, :, :length] for x in layers] for layers in (self.keys, self.values))
        return KVCache(keys, values, self.valid[:, :length], self.next_rope, full)

    def masked(self, keep: Tensor, next_rope: Tensor, full: bool) -> KVCache:
        """Only the tokens that bool [B, length] marks, and the rope position [B] behind them.

        `full`: as many of each row, and every row has as many.
        """
        valid = self.valid & keep
        columns = valid.any(0).nonzero().squeeze(1)
        return KVCache(
            [key.index_select(2, columns) for key in self.keys],
            [value.index_select(2, columns) for value in self.values],
            valid.index_select(1, columns),
            next_rope,
            full,
        )

    def grown(self, extra: int) -> KVCache:
        """A copy with room for `extra` more columns."""
        n = self.length

        def copy(x: Tensor) -> Tensor:
            out = x.new_empty((x.shape[0], x.shape[1], n + extra, x.shape[3]))
            out[:, :, :n] = x[:, :, :n]
            return out

        keys, values = ([copy(x) for x in layers] for layers in (self.keys, self.values))
        return KVCache(keys, values, self.valid, self.next_rope, self.full)

    def extend(self, layer: int, k_BKLd: Tensor, v_BKLd: Tensor) -> tuple[Tensor, Tensor]:
        """Earlier keys and values with the new ones behind them.

        Written in place where there is room (`grown`) and no gradient is asked for. The new columns do not count until
        `commit`; the next call writes over them.
        """
        n, new = self.length, k_BKLd.shape[2]
        key, value = self.keys[layer], self.values[layer]
        if torch.is_grad_enabled() or key.shape[2] < n + new:
            return torch.cat([key[:, :, :n], k_BKLd], 2), torch.cat([value[:, :, :n], v_BKLd], 2)
        key[:, :, n : n + new] = k_BKLd
        value[:, :, n : n + new] = v_BKLd
        return key[:, :, : n + new], value[:, :, : n + new]

    def commit(self, valid: Tensor, advance: Tensor, full: bool = False) -> None:
        """Count the columns just written: [B, Q] which of them are real, [B] how far the rope position moves.

        `full`: all of them are real.
        """
        self.valid = torch.cat([self.valid, valid], 1)
        self.next_rope = self.next_rope + advance
        self.full = self.full and full


def stacked(caches: Sequence[KVCache]) -> KVCache:
    """The rows of several contexts, one below the other."""
    length = max(cache.length for cache in caches)

    def stack(layers: Sequence[Tensor]) -> Tensor:
        """Of one layer, [B, K, capacity, d] of each context."""
        used = (x[:, :, : cache.length] for x, cache in zip(layers, caches, strict=True))
        return torch.cat([F.pad(x, (0, 0, 0, length - x.shape[2])) for x in used])

    return KVCache(
        [stack(layers) for layers in zip(*(cache.keys for cache in caches), strict=True)],
        [stack(layers) for layers in zip(*(cache.values for cache in caches), strict=True)],
        torch.cat([F.pad(cache.valid, (0, length - cache.length)) for cache in caches]),
        torch.cat([cache.next_rope for cache in caches]),
        all(cache.full and cache.length == length for cache in caches),
    )
