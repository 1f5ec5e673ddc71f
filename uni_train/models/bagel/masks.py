"""Who sees whom in a packed row, written with four integers per token.

BAGEL's rule: a token sees all earlier splits (segments) of its sample. In its own split it sees either what came before
it (causal: text) or everything (full: images). No token outside a noised image sees it. Number the tokens of a row in
their original order. A token then sees an interval of that order, minus the noised images of others:

    order   the token's number in its row
    start   the first number it sees: where its sample starts
    reach   the last number it sees: itself in text, the end of the split in an image
    noise   0, or a number that only the tokens of one noised image share

    q sees k  <=>  start[q] <= order[k] <= reach[q]  and  (noise[k] == 0 or noise[k] == noise[q])

Because only these integers matter, tokens may lie in memory in any order: understanding tokens first, generation
tokens behind them. The same predicate is a boolean mask (SDPA, CPU) and a flex_attention `mask_mod` (GPU).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BLOCK = 128
"""Tokens of a block of flex_attention."""


@dataclass(frozen=True, slots=True)
class TokenMask:
    """Integers [B, L] each, int32."""

    order: Tensor
    start: Tensor
    reach: Tensor
    noise: Tensor

    def at(self, column_BN: Tensor) -> TokenMask:
        """The tokens of these columns, row by row."""
        return TokenMask(*(part.gather(1, column_BN) for part in (self.order, self.start, self.reach, self.noise)))

    def allowed(self, keys: TokenMask | None = None) -> Tensor:
        """bool [B, 1, L, L], True = attend; `keys`: the tokens that are seen, where they are others."""
        keys = keys or self
        key = keys.order[:, None, None, :]
        noise_k = keys.noise[:, None, None, :]
        seen = (key >= self.start[:, None, :, None]) & (key <= self.reach[:, None, :, None])
        return seen.logical_and_((noise_k == 0) | (noise_k == self.noise[:, None, :, None]))

    def computed_share(self) -> float:
        """Of all pairs of tokens, the share in blocks that flex_attention looks at."""
        blocks = self.block_mask()
        side = -(-self.order.shape[1] // BLOCK)
        computed = blocks.kv_num_blocks.sum() + blocks.full_kv_num_blocks.sum()
        return float(computed) / (len(self.order) * side**2)

    def block_mask(self, keys: TokenMask | None = None) -> Any:
        """The same mask for flex_attention (GPU), from the bounds of blocks of 128 tokens: never L x L.

        Bounds prove which blocks are left out, and which are seen as a whole; of others flex looks at each token.
        """
        from torch.nn.attention.flex_attention import BlockMask

        keys = keys or self
        order, noise_k = keys.order, keys.noise
        start, reach, noise = self.start, self.reach, self.noise

        def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            key = order[b, k]
            seen = (key >= start[b, q]) & (key <= reach[b, q])
            return seen & ((noise_k[b, k] == 0) | (noise_k[b, k] == noise[b, q]))

        (first_k, last_k), (low_k, high_k) = _bounds(order), _bounds(noise_k)
        (first, start_to), (reach_from, last) = _bounds(start), _bounds(reach)
        low, high = (side[:, :, None] for side in _bounds(noise))
        first_k, last_k, low_k, high_k = (side[:, None, :] for side in (first_k, last_k, low_k, high_k))
        some = (last_k >= first[:, :, None]) & (first_k <= last[:, :, None])
        some &= (low_k == 0) | (low_k <= high) & (high_k >= low)
        every = (first_k >= start_to[:, :, None]) & (last_k <= reach_from[:, :, None])
        every &= (high_k == 0) | (low_k == high_k) & (low_k == low) & (low_k == high)
        for side, length in ((1, start.shape[1]), (2, order.shape[1])):  # blocks that tokens do not fill
            if length % BLOCK:
                every.select(side, -1).fill_(False)
        return BlockMask.from_kv_blocks(
            *_ordered(some & ~every),
            *_ordered(some & every),
            BLOCK_SIZE=BLOCK,
            mask_mod=sees,
            seq_lengths=(start.shape[1], order.shape[1]),
        )


def _bounds(number_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Least and largest number of each block, [B, ceil(L / BLOCK)]."""
    length = number_BL.shape[1]
    blocks = -(-length // BLOCK)
    last = number_BL[:, -1:].expand(-1, blocks * BLOCK - length)  # again, which changes no bound
    each = torch.cat([number_BL, last], 1).unflatten(1, (blocks, BLOCK))
    return each.amin(-1), each.amax(-1)


def _ordered(blocks_BQK: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each block of queries has, and which: int32 [B, 1, Q] and [B, 1, Q, K], those first."""
    blocks = blocks_BQK[:, None].int()
    return blocks.sum(-1, dtype=torch.int32), blocks.argsort(dim=-1, descending=True, stable=True).int()


def concatenate(first: TokenMask, second: TokenMask) -> TokenMask:
    """Tokens of `second` behind those of `first`."""
    return TokenMask(
        torch.cat([first.order, second.order], 1),
        torch.cat([first.start, second.start], 1),
        torch.cat([first.reach, second.reach], 1),
        torch.cat([first.noise, second.noise], 1),
    )
