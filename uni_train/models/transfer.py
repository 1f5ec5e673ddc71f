"""Tensors from the host to a device, without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor


def upload(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on `device`; from the host to a GPU by page-locked memory, for which the host need not wait."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def level_on(level: Tensor | float, device: torch.device) -> Tensor:
    """A noise level as float32 on `device`; a number is made into a tensor there, without a copy from the host."""
    return (
        upload(level, device).float()
        if isinstance(level, Tensor)
        else torch.full((), level, dtype=torch.float32, device=device)
    )
