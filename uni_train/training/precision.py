"""`bf16-true` as our models need it: weights in bfloat16, everything that is noised or drawn in float32.

Lightning's own plugin also casts each batch and makes bfloat16 the default dtype while a batch is computed. Noise
levels, latents and rope angles would then have eight bits; the models cast their inputs themselves, where it does no
harm.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from lightning.pytorch.plugins import HalfPrecision
from torch import nn


def cast_weights(module: nn.Module) -> nn.Module:
    """Weights to bfloat16, but those of a VAE, which encodes targets and is never trained.

    Buffers stay as they are: frequencies of rotary positions in eight bits turn far tokens by wrong angles.
    """
    model = getattr(module, "model", module)
    for name, part in model.named_children():
        if name != "vae":
            buffers = [(owner, dict(owner._buffers)) for owner in part.modules()]
            part.to(torch.bfloat16)
            for owner, kept in buffers:
                owner._buffers.update(kept)
    return module


class HalfWeights(HalfPrecision):
    """For one device and DDP; FSDP2 casts as it shards, and DeepSpeed's engine needs a plugin of its own."""

    def __init__(self) -> None:
        super().__init__("bf16-true")

    def convert_module(self, module: nn.Module) -> nn.Module:
        return cast_weights(module)

    def convert_input(self, data: Any) -> Any:
        return data

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        yield

    def tensor_init_context(self) -> AbstractContextManager[None]:
        return nullcontext()
