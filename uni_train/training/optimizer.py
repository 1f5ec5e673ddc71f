"""The optimizer of a training, and its learning rate over the updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from uni_train.config.schema import OptimizerConfig
from uni_train.training.strategies.sharding import shape_of


def learning_rate_factor(step: int, optimizer: OptimizerConfig, updates: int) -> float:
    """The share of `lr` used by update `step` (from 0) of `updates`: linear warm-up, constant, then the decay.

    The warm-up ends before the last update at the latest.
    """
    warmup = min(optimizer.warmup_updates, updates - 1)
    if step < warmup:
        return (step + 1) / warmup
    if optimizer.decay == "constant":
        return 1.0
    begin = max(warmup, math.floor((1 - optimizer.decay_share) * updates))
    if step < begin:
        return 1.0
    # The last update still learns a little: the end of the decay is one update past it.
    position = (step - begin + 1) / (updates - begin + 1)
    fall = 0.5 * (1 + math.cos(math.pi * position)) if optimizer.decay == "cosine" else 1 - position
    return optimizer.final_lr + (1 - optimizer.final_lr) * max(fall, 0.0)


def make_optimizer(parameters: Mapping[str, nn.Parameter], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW of these parameters; norms and biases have no weight decay."""
    shrinks = {name: len(shape_of(p)) >= 2 and "norm" not in name for name, p in parameters.items()}
    decayed = [p for name, p in parameters.items() if shrinks[name]]
    others = [p for name, p in parameters.items() if not shrinks[name]]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    half = any(parameter.dtype == torch.bfloat16 for parameter in parameters.values())
    if config.state == "8bit":
        from uni_train.training.low_bit_adamw import adamw_8bit

        return adamw_8bit(groups, config, half)
    if half:
        from uni_train.training.half_adamw import HalfAdamW

        return HalfAdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
