"""Attention with a mask that is prepared once a forward pass and used in every layer.

Implementations: *eager* is batched matrix products and a softmax in the compute dtype. *sdpa* is PyTorch's fused
kernels with a boolean mask, or none. The third is *flex* (flex_attention with a block mask; GPU only, as it has no
backward on CPU). *auto* takes flex for long packed rows on GPU, eager for small problems on CPU, else sdpa. Eager wins
there: fwd + bwd of 256 rows, 45 tokens, 4 heads of 24, one thread: fp32 38 ms against 69, bf16 34 ms against 380. Where
no backward pass can follow (`forward_only`) it wins in short float32 rows alone: 16 rows, 66 queries, 4 heads of 16,
forward: 98 keys 2.5 ms against 1.8, 400 keys 8.1 against 3.9. The choice never depends on whether gradients are
enabled: the two round differently, and what was drawn to train on is scored again with gradients.

Shapes: B rows, H query heads, K key/value heads, Q query tokens, L key tokens, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from uni_train.models.bagel.config import AttentionImpl
from uni_train.models.bagel.masks import TokenMask

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q_BHQd, k_BKLd, v_BKLv) -> o_BHQv; v may be wider than q and k."""

computed_share = ContextVar("computed_share", default=1.0)
"""`TokenMask.computed_share`, where masks have shapes alone (`plan`)."""
FLEX_FROM = 512
"""Tokens in a row from which a block mask pays for its construction."""
_EAGER_UP_TO = 512
"""Keys in a row up to which materialised scores are cheaper than the fused CPU kernel, with the backward pass."""
EAGER_FORWARD_UP_TO = 64
"""The same for the forward pass alone, in float32; in bfloat16 the fused kernel is cheaper from the first key on."""


def prepare(mask: TokenMask, impl: AttentionImpl, dtype: torch.dtype, keys: TokenMask | None = None) -> Attend:
    """Attention of the tokens of packed rows to `keys`; None: among themselves."""
    keys = keys or mask
    device = keys.order.device
    if impl == "auto":
        impl = "flex" if device.type == "cuda" and keys.order.shape[1] >= FLEX_FROM else _small(keys.order)
    if impl == "flex":
        if device.type != "cuda":
            raise ValueError("flex attention needs a GPU: it has no backward on CPU")
        return _flex(mask.block_mask(keys))
    return prepare_bool(mask.allowed(keys), impl, dtype)


def prepare_bool(
    allowed_B1QL: Tensor, impl: AttentionImpl, dtype: torch.dtype, *, full: bool = False, forward_only: bool = False
) -> Attend:
    """Attention under a boolean mask [B, 1, Q, L], True = attend; Q may be 1, for all queries.

    Args:
        full: the mask is True everywhere, which a device need not be asked; fused kernels then get none.
        forward_only: nobody asks for gradients, ever.
    """
    if impl in ("auto", "flex"):
        impl = _small(allowed_B1QL)
        if forward_only and (dtype != torch.float32 or allowed_B1QL.shape[-1] > EAGER_FORWARD_UP_TO):
            impl = "sdpa"
    if impl == "eager":
        bias = torch.zeros(allowed_B1QL.shape, dtype=dtype, device=allowed_B1QL.device)
        return _eager(bias.masked_fill_(~allowed_B1QL, -1e4))
    return _sdpa(None if full else allowed_B1QL)


def prepare_full(x_BLD: Tensor, impl: AttentionImpl) -> Attend:
    """Attention of all tokens of a row [B, L, .] among themselves, without a mask."""
    if impl in ("auto", "flex"):
        impl = "eager" if x_BLD.device.type == "cpu" and x_BLD.shape[1] <= _EAGER_UP_TO else "sdpa"
    return _eager(None) if impl == "eager" else _sdpa(None)


def _small(like: Tensor) -> AttentionImpl:
    return "eager" if like.device.type == "cpu" and like.shape[-1] <= _EAGER_UP_TO else "sdpa"


def _eager(bias_B1QL: Tensor | None) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, groups = q.shape[1], k.shape[1]
        scores = torch.matmul(_grouped(q * q.shape[-1] ** -0.5, groups), k.transpose(-1, -2))
        scores = scores.view(q.shape[0], heads, q.shape[2], k.shape[2])
        if bias_B1QL is not None:
            scores.add_(bias_B1QL.to(scores.dtype))
        weights = scores.softmax(-1)
        return torch.matmul(_grouped(weights, groups), v).view(*q.shape[:-1], v.shape[-1])

    return attend


def _grouped(x_BHQd: Tensor, groups: int) -> Tensor:
    """[B, H, Q, .] -> [B, K, H/K * Q, .]: the query heads that share a key head become one longer query."""
    b, h, q, d = x_BHQd.shape
    return x_BHQd if h == groups else x_BHQd.reshape(b, groups, h // groups * q, d)


def _sdpa(allowed_B1QL: Tensor | None) -> Attend:
    """Never `enable_gqa` beside a mask: flash attention refuses masks, the memory-efficient kernel grouped heads.

    PyTorch would then materialise the scores. Where all queries see the same keys, the heads of a group become one
    longer query; else keys and values are expanded.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, groups = q.shape[1], k.shape[1]
        if allowed_B1QL is None or allowed_B1QL.shape[2] == 1:
            o = F.scaled_dot_product_attention(_grouped(q, groups), k, v, attn_mask=allowed_B1QL)
            return o.reshape(*q.shape[:-1], v.shape[-1])
        if heads != groups:
            k, v = (x.repeat_interleave(heads // groups, dim=1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed_B1QL)

    return attend


def _flex(block_mask: Any) -> Attend:
    compiled = _compiled_flex()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return compiled(q, k, v, block_mask=block_mask, enable_gqa=q.shape[1] != k.shape[1])

    return attend


@cache
def _compiled_flex() -> Any:
    """Compiled once a process: uncompiled flex_attention would build the full score matrix."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)
