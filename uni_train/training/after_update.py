"""A Lightning callback that acts once an update, after the last of its micro-batches."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from uni_train.training.steps import StepBatch


class AfterUpdate(Callback):
    """Calls `after_update` in place of Lightning's hook for every micro-batch."""

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        """`step` updates are done."""
        raise NotImplementedError

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        if batch.last:
            self.after_update(trainer, pl_module, batch.step + 1)
