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

    def block_mask(self, keys: TokenMask | None = None) -> Any:
        """The same mask for flex_attention (GPU), without ever building L x L."""
        from torch.nn.attention.flex_attention import create_block_mask

        keys = keys or self
        order, noise_k = keys.order, keys.noise
        start, reach, noise = self.start, self.reach, self.noise

        def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            key = order[b, k]
            seen = (key >= start[b, q]) & (key <= reach[b, q])
            return seen & ((noise_k[b, k] == 0) | (noise_k[b, k] == noise[b, q]))

        rows, length = start.shape
        return create_block_mask(sees, rows, None, length, order.shape[1], device=str(order.device))


def join(first: TokenMask, second: TokenMask) -> TokenMask:
    """Tokens of `second` behind those of `first`."""
    return TokenMask(
        torch.cat([first.order, second.order], 1),
        torch.cat([first.start, second.start], 1),
        torch.cat([first.reach, second.reach], 1),
        torch.cat([first.noise, second.noise], 1),
    )
