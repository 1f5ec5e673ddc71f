"""AdamW whose moments have 8 bits, by torchao (Dettmers et al. 2022, arXiv 2110.02861): 2 bytes a weight, not 8.

Weights in bfloat16 are rounded stochastically, so that small updates are not lost: on average they stay where float32
would have them. That draws from torch's generator, which each update seeds anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from uni_train.models.quantised import need_torchao

if TYPE_CHECKING:
    from uni_train.config.schema import OptimizerConfig

BLOCK = 256  # numbers that share a scale
SMALLEST = 4096  # a weight of fewer numbers keeps whole moments


def adamw_8bit(groups: Iterable[dict[str, Any]], config: OptimizerConfig, half: bool) -> torch.optim.Optimizer:
    """Raises UserError where torchao is not installed."""
    need_torchao("optimizer.state=8bit")
    from torchao.optim import AdamW8bit

    return AdamW8bit(
        groups, lr=config.lr, betas=config.betas, eps=config.eps, bf16_stochastic_round=half, block_size=BLOCK
    )


def moments(weight: nn.Parameter) -> list[Tensor]:
    """Tensors of the size of one weight's state, for `plan`."""
    if weight.numel() < SMALLEST or weight.numel() % BLOCK:
        return [torch.empty_like(weight) for _ in range(2)]
    codes = [torch.empty_like(weight, dtype=torch.uint8) for _ in range(2)]
    return [*codes, *(weight.new_empty(weight.numel() // BLOCK, dtype=torch.float32) for _ in codes)]


def moments_of(codes: Tensor, scale: Tensor, signed: bool, dtype: torch.dtype) -> Tensor:
    """The state that a checkpoint holds as these two tensors. Raises UserError where torchao is not installed."""
    need_torchao("a checkpoint with optimizer.state=8bit")
    from torchao.optim.subclass_8bit import OptimState8bit

    like = OptimState8bit.zeros(codes.shape, signed, codes.numel() // scale.numel(), dtype=dtype)
    return OptimState8bit(codes, scale, like.qmap, signed, dtype)
