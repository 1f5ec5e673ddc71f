"""What an image that is drawn reads of understanding: `BagelConfig.fusion`.

    deep      keys and values of the same layer, as BAGEL. Those of layer l are made from the output of layer l - 1.
              So the output of the last layer, where the next word is chosen, is never read
    last      these, and the final hidden states, which enter the generation stream as further tokens
              (Qwen-Image conditions on final states alone: Wu et al. 2025, arXiv 2508.02324)
    queries   the final hidden states of learned tokens that understanding reads behind the context, and nothing else
              (MetaQuery: Pan et al. 2025, arXiv 2504.06256; BLIP3-o: Chen et al. 2025, arXiv 2505.09568)

These further tokens are the *memory* of an image. They pass the generation weights. Their image sees them; noise
levels do not reach them, so drawing computes them once.

Shapes: B rows, T tokens of the context, M of the memory, I images, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from uni_train.models.bagel.attention import prepare
from uni_train.models.bagel.config import AttentionImpl
from uni_train.models.bagel.masks import TokenMask, join
from uni_train.models.bagel.mot import Decoder
from uni_train.models.bagel.prefixes import LayerKeys


class Memory(nn.Module):
    """Final hidden states [B, M, D] -> tokens of the generation stream. `queries`: learned tokens an image."""

    def __init__(self, dim: int, queries: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.queries = nn.Parameter(torch.zeros(queries, dim)) if queries else None

    def forward(self, hidden_BMD: Tensor) -> Tensor:
        return self.proj(hidden_BMD)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Vectors [B, M, D], rope positions [B, M], and who sees whom."""

    x_BMD: Tensor
    rope_BM: Tensor
    mask: TokenMask


def memory_of(
    memory: Memory,
    decoder: Decoder,
    impl: AttentionImpl,
    context: Tokens,
    keys: LayerKeys,
    images: TokenMask,
    rope_BI: Tensor,
) -> tuple[Tokens, TokenMask, LayerKeys]:
    """The memory of noised images; which tokens of the context they see beside it, and the keys of these.

    Args:
        context: the final states of what understanding has read. keys: its keys of all layers.
        images: of the marker that begins each image; numbers are `doubled`, as those of `context`.
        rope_BI: rope positions of these markers.
    """
    queries = memory.queries
    if queries is None:
        return replace(context, x_BMD=memory(context.x_BMD)), context.mask, keys
    before = images.order - 1  # a free number, behind the context and before the marker
    parts = (before, images.start, before, images.noise)
    mask = TokenMask(*(part.repeat_interleave(len(queries), 1) for part in parts))
    rope = (rope_BI[..., None] + torch.arange(len(queries), device=rope_BI.device)).flatten(1)
    x_BMD = queries.repeat(rope_BI.shape[1], 1).expand(rope.shape[0], -1, -1)
    attend = prepare(mask, impl, x_BMD.dtype, join(context.mask, mask))
    hidden, _ = decoder(x_BMD, x_BMD[:, :0], rope, rope[:, :0], attend, keys)
    return Tokens(memory(hidden), rope, mask), context.mask.at(rope[:, :0]), LayerKeys()


def doubled(mask: TokenMask) -> TokenMask:
    """The same mask with a free number before every token."""
    return TokenMask(2 * mask.order, 2 * mask.start - 1, 2 * mask.reach, mask.noise)
