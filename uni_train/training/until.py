"""Training until a question about the weights is answered with yes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from uni_train.training.steps import StepBatch
from uni_train.training.strategies.sharding import unsharded


class Until(Callback):
    """Ends a fit at the first look at which `passed` says so; without one it ends after all of its updates.

    Looks are every `every` updates from `least` updates on, with the model in eval mode and its weights whole. All
    ranks look, and the first one's finding counts. `passed` gets the number of updates and must otherwise be a function
    of the weights alone, then a resumed fit ends where an unbroken one does.

    Attributes:
        ended: updates after which `passed` was true; None as long as it was not.
    """

    def __init__(self, passed: Callable[[int], bool], every: int, least: int = 0) -> None:
        self.passed, self.every, self.least = passed, every, least
        self.ended: int | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.ended is not None:  # a checkpoint of the last update, whose fit was killed before it ended
            trainer.should_stop = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        step = batch.step + 1
        if not batch.last or step % self.every or step < self.least:
            return
        modes = {module: module.training for module in pl_module.modules()}
        pl_module.eval()
        with torch.no_grad(), unsharded(pl_module):
            found = trainer.strategy.broadcast(self.passed(step))
        for module, training in modes.items():
            module.training = training
        if found:
            self.ended = step
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        return {"ended": self.ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.ended = state_dict["ended"]
