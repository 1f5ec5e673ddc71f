"""RMSNorm (Zhang & Sennrich 2019), plain and fused with rope for queries and keys.

``y = w * x / sqrt(mean(x^2) + eps)``.

On CPU PyTorch has no fused backward of it: at small widths the norms would cost more than the matrix products. The
two autograd functions below do the same arithmetic in fewer passes over memory (one thread, forward + backward: [256,
45, 96] fp32 15.6 -> 10.3 ms, bf16 20 -> 8 ms; q or k norm and rope of [256, 45, 4, 24] fp32 33 -> 21 ms, bf16 39 -> 16
ms). On GPU, and where torch.compile fuses them, the stock operators are used. Double backward is not supported on CPU.

Shapes: B rows, L tokens, D width, H heads, d channels of a head.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uni_train.models.bagel.positions import rope_tables


class RMSNorm(nn.Module):
    """Normalises the last dimension; statistics in float32."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            if not torch.is_grad_enabled():
                return _unit(x, self.eps)[0].mul_(self.weight.to(x.dtype))
            return _RmsNorm.apply(x, self.weight, self.eps)
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class RopeTables:
    """cos and sin of the tokens' rope positions, made once a forward pass and used in every layer.

    Attributes:
        cos, sin: [B, L, d] in the compute dtype, both halves of the channels; sin is negative in the first one.
    """

    def __init__(self, position_BL: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> None:
        cos, sin = (table.to(dtype) for table in rope_tables(position_BL, head_dim, theta))
        self.cos, self.sin = torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
        self._spread: dict[int, tuple[Tensor, Tensor]] = {}

    def spread(self, heads: int) -> tuple[Tensor, Tensor]:
        """cos and sin of every channel of every head, [B * L * heads, d]."""
        if heads not in self._spread:
            cos, sin = (x[:, :, None].expand(-1, -1, heads, -1).flatten(0, 2) for x in (self.cos, self.sin))
            self._spread[heads] = cos, sin
        return self._spread[heads]


class HeadNormRope(nn.Module):
    """RMSNorm of every head of q or k, then rope (half rotation), then heads before tokens.

    ``(a, b) -> (a, b) cos + (b, a) (-sin, sin)`` with a, b the first and second half of the channels.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x_BLHd: Tensor, rope: RopeTables) -> Tensor:
        """[B, L, H, d] -> [B, H, L, d], a view of memory that still has tokens before heads."""
        if x_BLHd.device.type == "cpu" and not torch.compiler.is_compiling():
            cos, sin = rope.spread(x_BLHd.shape[2])
            return _HeadNormRope.apply(x_BLHd, self.weight, cos, sin, self.eps)
        x = F.rms_norm(x_BLHd, (x_BLHd.shape[-1],), self.weight.to(x_BLHd.dtype), self.eps)
        cos, sin = rope.cos[:, :, None], rope.sin[:, :, None]
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin).transpose(1, 2)


def _statistics(x: Tensor) -> torch.dtype:
    """float32, or float64 for float64."""
    return torch.promote_types(x.dtype, torch.float32)


def _unit(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """``x / sqrt(mean(x^2) + eps)``, a new tensor, and the factor [..., 1]."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=_statistics(x))
    scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_().to(x.dtype)
    return x * scale, scale


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        unit, scale = _unit(x, eps)
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        unit, scale, weight = ctx.saved_tensors
        dim = unit.shape[-1]
        w = weight.to(unit.dtype)
        product = (grad * unit).reshape(-1, dim)
        grad_weight = product.sum(0, dtype=_statistics(product)).to(weight.dtype)
        mean = (product @ w).div_(dim).view(scale.shape)
        return torch.mul(grad, w).addcmul_(unit, mean, value=-1).mul_(scale), grad_weight, None


class _HeadNormRope(torch.autograd.Function):
    """With n = B*L*H heads: everything is a full pass over [n, d] or a product with a constant [d, d] matrix.

    The mean over channels, already spread over them, is ``x^2 @ M`` with M = 1/d; the halves change places by
    ``y @ S``. Reductions and slices over few channels would cost several times as much.
    """

    @staticmethod
    def forward(ctx: Any, x_BLHd: Tensor, weight: Tensor, cos_nd: Tensor, sin_nd: Tensor, eps: float) -> Tensor:
        x = x_BLHd.reshape(-1, x_BLHd.shape[-1])
        average, swap = _constants(x.shape[-1], x.dtype)
        cos, sin = cos_nd.to(x.dtype), sin_nd.to(x.dtype)
        scale = torch.mm(x * x, average).add_(eps).rsqrt_()
        unit = x * scale
        y = unit * weight.to(x.dtype)
        out = torch.mm(y, swap).mul_(sin).addcmul_(y, cos)
        ctx.save_for_backward(unit, scale, weight, cos, sin)
        return out.view(x_BLHd.shape).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, grad_BHLd: Tensor) -> tuple[Tensor, Tensor, None, None, None]:  # type: ignore[override]
        unit, scale, weight, cos, sin = ctx.saved_tensors
        average, swap = _constants(unit.shape[-1], unit.dtype)
        grad_BLHd = grad_BHLd.transpose(1, 2)
        grad = grad_BLHd.reshape(unit.shape)
        turned = torch.addmm(grad * cos, grad * sin, swap)
        product = turned * unit
        grad_weight = product.sum(0, dtype=_statistics(product)).to(weight.dtype)
        w = weight.to(unit.dtype)
        mean = torch.mm(product.mul_(w), average)
        grad_x = turned.mul_(w).addcmul_(unit, mean, value=-1).mul_(scale)
        return grad_x.view(grad_BLHd.shape), grad_weight, None, None, None


@cache
def _constants(dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """M and S of `_HeadNormRope`."""
    return torch.full((dim, dim), 1 / dim, dtype=dtype), torch.eye(dim, dtype=dtype).roll(dim // 2, 0)
