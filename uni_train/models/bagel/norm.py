"""RMSNorm (Zhang & Sennrich 2019), plain and fused with rope for queries and keys.

``y = w * x / sqrt(mean(x^2) + eps)``.

On CPU PyTorch has no fused backward of it: at small widths the norms would cost more than the matrix products. The
two autograd functions below do the same arithmetic in about half the passes over memory (bench: fwd + bwd of
[256, 45, 96], one thread, fp32 15.6 -> 10.3 ms, bf16 20 -> 8 ms; q/k norm + rope of [256, 45, 4, 24], fp32 33 -> 22 ms,
bf16 39 -> 22 ms). On GPU the stock operators are used. Double backward is not supported on CPU.

Shapes: B rows, L tokens, D width, H heads, d channels of a head.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Normalises the last dimension; statistics in float32."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu":
            return _RmsNorm.apply(x, self.weight, self.eps)
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class HeadNormRope(nn.Module):
    """RMSNorm of every head of q or k, then rope (half rotation), then heads before tokens.

    ``(a, b) -> (a cos - b sin, b cos + a sin)`` with a, b the first and second half of the channels.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x_BLHd: Tensor, cos_BLd: Tensor, sin_BLd: Tensor) -> Tensor:
        """[B, L, H, d] and tables [B, L, d/2] -> [B, H, L, d] (on CPU a view of channel-major memory)."""
        if x_BLHd.device.type == "cpu":
            return _HeadNormRope.apply(x_BLHd, self.weight, cos_BLd, sin_BLd, self.eps)
        x = F.rms_norm(x_BLHd, (x_BLHd.shape[-1],), self.weight.to(x_BLHd.dtype), self.eps).transpose(1, 2)
        a, b = x.chunk(2, dim=-1)
        cos, sin = cos_BLd[:, None], sin_BLd[:, None]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _statistics(x: Tensor) -> torch.dtype:
    """float32, or float64 for float64."""
    return torch.promote_types(x.dtype, torch.float32)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=_statistics(x))
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_().to(x.dtype)
        unit = x * scale
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
    """Channels before tokens in memory: both halves of rope and the mean over channels vectorise over tokens."""

    @staticmethod
    def forward(ctx: Any, x_BLHd: Tensor, weight: Tensor, cos_BLd: Tensor, sin_BLd: Tensor, eps: float) -> Tensor:
        dtype = x_BLHd.dtype
        half = x_BLHd.shape[-1] // 2
        x = x_BLHd.permute(0, 2, 3, 1).contiguous()  # B H d L
        if x.data_ptr() == x_BLHd.data_ptr():  # one token: already contiguous, so not ours to change
            x = x.clone()
        cos = cos_BLd.to(dtype).transpose(1, 2).contiguous()[:, None]
        sin = sin_BLd.to(dtype).transpose(1, 2).contiguous()[:, None]
        scale = (x * x).mean(2, keepdim=True, dtype=_statistics(x)).add_(eps).rsqrt_().to(dtype)
        unit = x.mul_(scale)
        w = weight.to(dtype)[:, None]
        out = torch.empty_like(unit)
        a, b = unit[:, :, :half], unit[:, :, half:]
        torch.mul(a, cos * w[:half], out=out[:, :, :half])
        out[:, :, :half].addcmul_(b, sin * w[half:], value=-1)
        torch.mul(b, cos * w[half:], out=out[:, :, half:])
        out[:, :, half:].addcmul_(a, sin * w[:half])
        ctx.save_for_backward(unit, scale, weight, cos, sin)
        return out.transpose(2, 3)

    @staticmethod
    def backward(ctx: Any, grad_BHLd: Tensor) -> tuple[Tensor, Tensor, None, None, None]:  # type: ignore[override]
        unit, scale, weight, cos, sin = ctx.saved_tensors
        dim = unit.shape[2]
        half = dim // 2
        grad = grad_BHLd.transpose(2, 3)
        turned = torch.empty_like(unit)
        a, b = grad[:, :, :half], grad[:, :, half:]
        torch.mul(a, cos, out=turned[:, :, :half])
        turned[:, :, :half].addcmul_(b, sin)
        torch.mul(b, cos, out=turned[:, :, half:])
        turned[:, :, half:].addcmul_(a, sin, value=-1)
        product = turned * unit
        grad_weight = product.sum(-1, dtype=_statistics(product)).reshape(-1, dim).sum(0).to(weight.dtype)
        w = weight.to(unit.dtype)[:, None]
        mean = product.mul_(w).mean(2, keepdim=True)
        grad_x = turned.mul_(w).addcmul_(unit, mean, value=-1).mul_(scale)
        return grad_x.permute(0, 3, 1, 2), grad_weight, None, None, None
