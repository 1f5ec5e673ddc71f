"""Averages of the weights (averages.py) as a callback of Lightning: when they move, and which checkpoints have them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import lightning.pytorch as pl
from torch import nn

from uni_train.training.after_update import AfterUpdate
from uni_train.training.averages import Averages, put
from uni_train.training.strategies.sharding import cut, held, is_sharded, unsharded


class Ema(Averages, AfterUpdate):
    """Averages after every update, starting from the weights after the first one.

    The averages are in every checkpoint beside the weights, and replace them when training ends. Each rank averages
    and saves what it holds.
    """

    def __init__(self, decay: float, *, offload: bool = False) -> None:
        super().__init__(decay, offload=offload)
        self._sharded: dict[str, nn.Parameter] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        weights = dict(pl_module.named_parameters())
        self._sharded = {name: w for name, w in weights.items() if w.requires_grad and is_sharded(w)}
        self.averages = {name: cut(weights[name], value) for name, value in self.averages.items()}

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        self.update(module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        put(pl_module, self.averages)

    def averaged(self, module: nn.Module) -> AbstractContextManager[None]:
        """Within this block `module` has the averaged weights, whole on each rank; today's before there are any."""
        return unsharded(module, self.averages)

    def state_dict(self) -> dict[str, Any]:
        sharded = self._sharded if self.averages else {}
        return {"averages": self.averages | {n: held(weight, self.averages[n]) for n, weight in sharded.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.averages = dict(state_dict["averages"])
