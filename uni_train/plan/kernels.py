"""What fused GPU kernels keep, for tracing on the meta device.

There PyTorch would take its unfused forms, which hold scores of attention and float32 copies that no GPU kernel does.
Attention on a GPU, as torch.nn.attention.SDPBackend names it:

    flash        without a mask in half precision; heads may share keys
    efficient    with a mask, or in float32: a head each of keys and values; the mask as numbers of their dtype
    math         elsewhere: heads that share keys under a mask or in float32, odd sizes of a head; all scores
    flex         long packed rows of a BAGEL (uni_train/models/bagel/attention.py), as flash

A newer cuDNN fuses more on H100 and B200: there a plan of "math" is too high.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from uni_train.models.bagel import attention as bagel
from uni_train.models.bagel.masks import TokenMask

_BLOCKS = torch.Size((0,))
"""The shape of what stands for a block mask."""
_BACKWARD = 2.5
"""Forward passes that a backward one is worth, as it has five products and not two (Dao 2023, section 4.1)."""


class Counter(Protocol):
    """Where FLOPs are added up."""

    flops: float


@contextlib.contextmanager
def gpu_kernels(trace: Counter) -> Iterator[None]:
    """Attention by the kernels above, and RMSNorm that keeps its input and a float32 a row.

    Fused attention keeps q, k, v, its output and a float32 a query (FlashAttention, Dao et al. 2022, algorithm 1). Of
    flex the blocks that it looks at are counted; the others are counted as dense, whatever their masks.

    What code asks the meta device for its numbers gets ones: a noise level of 1 is one at which guidance acts.
    """
    math, sdpa = F.scaled_dot_product_attention, bagel._sdpa

    def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *args: Any, **more: Any) -> Tensor:
        flash = attn_mask is None and query.dtype != torch.float32
        odd = query.shape[-1] % (16 // query.element_size())
        if odd or not (flash or query.shape[-3] == key.shape[-3]):
            return math(query, key, value, attn_mask, *args, **more)
        return _Attention.apply(query, key, value, None if attn_mask is None else attn_mask.to(query.dtype), trace)

    def attend(allowed: Tensor | None) -> bagel.Attend:
        if allowed is not None and allowed.shape == _BLOCKS:
            share = bagel.computed_share.get()
            return lambda q, k, v: _Attention.apply(q, k, v, None, trace, share)
        return sdpa(allowed)

    def rms_norm(x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        return _RmsNorm.apply(x, weight)

    def allowed(mask: TokenMask, keys: TokenMask | None = None) -> Tensor:
        rows, length = (keys or mask).order.shape
        if length >= bagel.FLEX_FROM:
            return torch.empty(_BLOCKS, dtype=torch.bool, device="meta")  # a block mask stores no pairs
        return torch.empty(rows, 1, mask.order.shape[1], length, dtype=torch.bool, device="meta")

    tolist, truth = Tensor.tolist, Tensor.__bool__

    def ones(x: Tensor) -> Any:
        return tolist(torch.ones(x.shape) if x.device.type == "meta" else x)

    def true(x: Tensor) -> bool:
        return x.device.type == "meta" or truth(x)

    # Not a TorchFunctionMode: it is off while backward() runs, and so for layers that are computed again there.
    replaced: list[tuple[Any, str, Any]] = [
        (F, "scaled_dot_product_attention", attention),
        (bagel, "_sdpa", attend),
        (F, "rms_norm", rms_norm),
        (TokenMask, "allowed", allowed),
        (Tensor, "tolist", ones),
        (Tensor, "__bool__", true),
    ]
    before = [getattr(owner, name) for owner, name, _ in replaced]
    for owner, name, function in replaced:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for (owner, name, _), function in zip(replaced, before, strict=True):
            setattr(owner, name, function)


def fused_adamw(optimizer: torch.optim.Optimizer) -> None:
    """A step of AdamW in one kernel: it makes what the optimizer keeps, the first time, and nothing for the moment."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and not optimizer.state[parameter]:
                moments = {name: torch.empty_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                optimizer.state[parameter] = {"step": torch.zeros(()), **moments}


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, trace: Counter, share: float = 1.0
    ) -> Tensor:
        out = q.new_empty((*q.shape[:-1], v.shape[-1]))
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:-1], dtype=torch.float32), bias)
        ctx.trace, ctx.flops = trace, 2 * q[..., 0].numel() * k.shape[-2] * (q.shape[-1] + v.shape[-1]) * share
        trace.flops += ctx.flops
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, *tuple[None, ...]]:  # type: ignore[override]
        q, k, v, _, sums, _ = ctx.saved_tensors
        torch.empty_like(sums)
        ctx.trace.flops += _BACKWARD * ctx.flops
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None, None, None


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight, x.new_empty((*x.shape[:-1], 1), dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight)
