"""Text at static shapes, a step of which torch.compile makes one kernel launch (`model.compile`).

Keys and values have room for 256 tokens, or for twice as many as before. Masks and the next column are tensors, so a
token changes no shape: nothing is compiled again, and a GPU replays the step as a CUDA graph. Such a graph is recorded
for its addresses. So the memory is kept, for the next texts of as many rows.

Shapes: B rows, T columns of room; K key/value heads, d channels of a head; D width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uni_train.models.bagel.attention import prepare_bool

if TYPE_CHECKING:
    from uni_train.models.bagel.bagel import Bagel
    from uni_train.models.bagel.generation import KVCache

LEAST_COLUMNS = 256


@cache
def compiled(function: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
    """The function by torch.compile, once a process; a size that changed is a symbol from then on."""
    return torch.compile(function, mode=mode)


class StaticKeys:
    """Contexts at fixed addresses.

    Attributes:
        keys, values: per layer [B, K, T, d].
        valid: bool [B, T], the columns that count.
        rope: int64 [B], the rope position of what comes next.
        column: int64 [1], where it goes.
    """

    def __init__(self, like: KVCache, columns: int) -> None:
        rows, heads, _, channels = like.keys[0].shape
        device = like.valid.device
        with torch.inference_mode(False):  # else no_grad alone could not write to it
            self.keys, self.values = (
                [torch.zeros(rows, heads, columns, channels, dtype=x.dtype, device=device) for x in side]
                for side in (like.keys, like.values)
            )
            self.valid = torch.zeros(rows, columns, dtype=torch.bool, device=device)
            self.rope, self.column = (torch.zeros(n, dtype=torch.long, device=device) for n in (rows, 1))
        for tensor in (*self.keys, *self.values, self.valid, self.rope, self.column):
            torch._dynamo.mark_static_address(tensor, guard=False)

    def fill(self, cache: KVCache) -> None:
        """Begin with these contexts."""
        n = cache.length
        for mine, theirs in zip([*self.keys, *self.values], [*cache.keys, *cache.values], strict=True):
            mine[:, :, :n] = theirs[:, :, :n]
        self.valid.zero_()
        self.valid[:, :n] = cache.valid
        self.rope.copy_(cache.next_rope)
        self.column.fill_(n)

    def extend(self, layer: int, k_BKLd: Tensor, v_BKLd: Tensor) -> tuple[Tensor, Tensor]:
        """Write one column; all of them, also those that do not count."""
        key, value = self.keys[layer], self.values[layer]
        return key.index_copy_(2, self.column, k_BKLd), value.index_copy_(2, self.column, v_BKLd)


def static_keys(kept: dict[int, StaticKeys], cache: KVCache) -> StaticKeys:
    """Room for these contexts and at least a column more, from `kept` (columns -> room) where that has it."""
    columns = LEAST_COLUMNS
    while columns <= cache.length:
        columns *= 2
    like = (cache.rows, cache.valid.device, cache.keys[0].dtype)
    if any((len(x.rope), x.rope.device, x.keys[0].dtype) != like for x in kept.values()):
        kept.clear()
    if columns not in kept:
        kept[columns] = StaticKeys(cache, columns)
    kept[columns].fill(cache)
    return kept[columns]


def text_step(model: Bagel, held: StaticKeys, ids_B1: Tensor, valid_B1: Tensor) -> Tensor:
    """Put a token a row into the next column; hidden states [B, 1, D] after the final norm.

    A token that is not valid does not count, and moves no position.
    """
    x_B1D = model.language_model.model.embed_tokens(ids_B1)
    here_T = torch.arange(held.valid.shape[1], device=held.valid.device) == held.column
    attend = prepare_bool((held.valid | here_T)[:, None, None], model.config.attention, x_B1D.dtype)
    rope = held.rope[:, None]
    hidden, _ = model.language_model.model(x_B1D, x_B1D[:, :0], rope, rope[:, :0], attend, held)
    held.valid.logical_or_(here_T & valid_B1)
    held.rope.add_(valid_B1[:, 0])
    held.column.add_(1)
    return hidden
