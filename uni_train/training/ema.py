"""Exponential moving average of the weights: W_ema <- decay * W_ema + (1 - decay) * W after every update.

Only what is trained is averaged; frozen weights are their own average. The average is kept in float32 also where the
weights are in half precision: there a step of (1 - decay) would be rounded away.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from uni_train.training.steps import StepBatch
from uni_train.training.strategies.sharding import cut, is_sharded, join, part, unsharded


class Ema(Callback):
    """Averages after every update, starting from the weights after the first one.

    The averages are in every checkpoint beside the weights, and replace them when training ends. Each rank averages
    what it holds; checkpoints have the whole.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.averages: dict[str, Tensor] = {}
        self._sharded: dict[str, nn.Parameter] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._sharded = {name: p for name, p in pl_module.named_parameters() if p.requires_grad and is_sharded(p)}
        for name, weight in self._sharded.items():
            if name in self.averages:
                self.averages[name] = cut(weight, self.averages[name])

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        if batch.last:
            self.update(pl_module)

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Take the current weights into the average."""
        weights = {name: part(p) for name, p in module.named_parameters() if p.requires_grad}
        if not self.averages:
            self.averages = {name: _at_least_float32(value).clone() for name, value in weights.items()}
            return
        self.averages = {name: self.averages[name].to(value.device) for name, value in weights.items()}
        alike = [name for name, value in weights.items() if value.dtype == self.averages[name].dtype]
        if alike:
            averages, values = [self.averages[name] for name in alike], [weights[name] for name in alike]
            torch._foreach_lerp_(averages, values, 1 - self.decay)
        for name in weights.keys() - alike:  # one by one: all their float32 copies together are as large as the model
            self.averages[name].lerp_(_at_least_float32(weights[name]), 1 - self.decay)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        put(pl_module, self.averages)

    def averaged(self, module: nn.Module) -> AbstractContextManager[None]:
        """Within this block `module` has the averaged weights, whole on each rank; today's before there are any."""
        return unsharded(module, self.averages)

    def state_dict(self) -> dict[str, Any]:
        return {"averages": self.averages | {n: join(p, self.averages[n]).cpu() for n, p in self._sharded.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.averages = dict(state_dict["averages"])


@torch.no_grad()
def put(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Overwrite the parameters that `weights` names, of each what this rank holds."""
    for name, parameter in module.named_parameters():
        if name in weights:
            part(parameter).copy_(weights[name])


def _at_least_float32(value: Tensor) -> Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))
