"""Positions and patches of images: grid ids, sin-cos tables, patchify, and the sinusoid of a noise level.

Shapes: H, W pixels or latents; h, w the grid of patches; p patch side; C channels; D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def grid_position_ids(h: int, w: int, max_per_side: int, device: torch.device | str = "cpu") -> Tensor:
    """int64 [h*w]: ``row * max_per_side + column``, rows first ("extrapolate" in the released code)."""
    if h > max_per_side or w > max_per_side:
        raise ValueError(f"a grid of {h} x {w} patches does not fit the position table of {max_per_side} per side")
    rows, columns = (torch.arange(n, device=device) for n in (h, w))
    return (rows[:, None] * max_per_side + columns).reshape(-1)


def sincos_table(dim: int, side: int, base: float = 10000.0) -> Tensor:
    """float32 [side*side, dim] of 2-D sin-cos positions (MAE, He et al. 2021; DiT).

    The first half of the channels encodes the column, the second half the row; each half is sines then cosines of
    ``position * base^(-k / (dim/4))``, k = 0 .. dim/4 - 1. `dim` must be a multiple of 4.
    """
    if dim % 4:
        raise ValueError(f"a 2-D sin-cos table needs a width divisible by 4, got {dim}")
    if torch.get_default_device().type == "meta":
        return torch.empty(side * side, dim)  # without values; torch.arange would import torch._dynamo there
    omega = base ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim / 4))
    angle = torch.arange(side, dtype=torch.float64)[:, None] * omega
    axis = torch.cat([angle.sin(), angle.cos()], dim=1)
    column = axis.repeat(side, 1)
    row = axis.repeat_interleave(side, dim=0)
    return torch.cat([column, row], dim=1).float()


def patchify(image_CHW: Tensor, p: int) -> Tensor:
    """[..., C, H, W] -> [..., h*w, p*p*C]; rows and columns that do not fill a patch are dropped.

    A patch vector is ordered (row in patch, column in patch, channel), channel fastest.
    """
    *lead, c, height, width = image_CHW.shape
    h, w = height // p, width // p
    x = image_CHW[..., : h * p, : w * p].reshape(*lead, c, h, p, w, p)
    n = len(lead)
    x = x.permute(*range(n), n + 1, n + 3, n + 2, n + 4, n)
    return x.reshape(*lead, h * w, p * p * c)


def unpatchify(tokens: Tensor, grid: tuple[int, int], p: int) -> Tensor:
    """Inverse of `patchify`: [..., h*w, p*p*C] -> [..., C, h*p, w*p]."""
    *lead, _, width = tokens.shape
    h, w = grid
    c = width // (p * p)
    n = len(lead)
    x = tokens.reshape(*lead, h, w, p, p, c).permute(*range(n), n + 4, n, n + 2, n + 1, n + 3)
    return x.reshape(*lead, c, h * p, w * p)


def timestep_sinusoid(t: Tensor, size: int = 256, max_period: float = 10000.0) -> Tensor:
    """[N] -> float32 [N, size], cosines first, then sines; t in [0, 1] is used as it is (not times 1000)."""
    half = size // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32, device=t.device) / half)
    angle = t.float()[:, None] * freqs
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


def rope_tables(position: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [..., head_dim / 2], of ``position * theta^(-2k / head_dim)`` (Su et al. 2021)."""
    k = torch.arange(0, head_dim, 2, dtype=torch.float32, device=position.device)
    angle = position.float()[..., None] * (1.0 / theta ** (k / head_dim))
    return angle.cos(), angle.sin()
