"""What fused GPU kernels keep, for tracing on the meta device.

There PyTorch would take its unfused forms, which hold scores of attention and float32 copies that no GPU kernel does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from uni_train.models.bagel.masks import TokenMask

_BACKWARD = 2.5
"""Forward passes that a backward one is worth, as it has five products and not two (Dao 2023, section 4.1)."""


class Counter(Protocol):
    """Where FLOPs are added up."""

    flops: float


@contextlib.contextmanager
def gpu_kernels(trace: Counter) -> Iterator[None]:
    """Attention that keeps q, k, v, its output and a float32 a query (FlashAttention, Dao et al. 2022, algorithm 1;
    flex_attention keeps the same), RMSNorm that keeps its input and a float32 a row. Attention is counted as dense,
    whatever its mask.

    What code asks the meta device for its numbers gets ones: a noise level of 1 is one at which guidance acts.
    """

    def attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _Attention.apply(query, key, value, trace)

    def rms_norm(x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        return _RmsNorm.apply(x, weight)

    def allowed(mask: TokenMask, keys: TokenMask | None = None) -> Tensor:
        return (keys or mask).order[:, None, None].to(torch.bool)  # [B, 1, 1, K]: a block mask stores no pairs

    tolist = Tensor.tolist

    def ones(x: Tensor) -> Any:
        return tolist(torch.ones(x.shape) if x.device.type == "meta" else x)

    # Not a TorchFunctionMode: it is off while backward() runs, and so for layers that are computed again there.
    replaced: list[tuple[Any, str, Any]] = [
        (F, "scaled_dot_product_attention", attention),
        (F, "rms_norm", rms_norm),
        (TokenMask, "allowed", allowed),
        (Tensor, "tolist", ones),
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
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, trace: Counter) -> Tensor:  # type: ignore[override]
        out = q.new_empty((*q.shape[:-1], v.shape[-1]))
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:-1], dtype=torch.float32))
        ctx.trace, ctx.flops = trace, 2 * q[..., 0].numel() * k.shape[-2] * (q.shape[-1] + v.shape[-1])
        trace.flops += ctx.flops
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        q, k, v, _, sums = ctx.saved_tensors
        torch.empty_like(sums)
        ctx.trace.flops += _BACKWARD * ctx.flops
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight, x.new_empty((*x.shape[:-1], 1), dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight)
