"""A fit that is told to end (uni_train.distributed.preemption) does so after its next update, and saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint

from uni_train.distributed import preemption
from uni_train.distributed.watchdog import note
from uni_train.training.callbacks import save
from uni_train.training.checkpoint_io import checkpoint_name
from uni_train.training.metric_log import MetricLog
from uni_train.training.steps import StepBatch


class EndWhenTold(Checkpoint):
    """Saves and ends where any rank was told to; tells the watchdog of every update. Comes after PeriodicCheckpoint."""

    def __init__(self, directory: Path, every: int, metric_log: MetricLog) -> None:
        self.directory, self.every, self.metric_log = Path(directory), every, metric_log

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        preemption.listen()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        step = batch.step + 1
        if not batch.last:
            return
        note(update=step)
        if step == trainer.max_steps or not preemption.agreed():
            return
        if step % self.every:  # else it is saved already
            self.metric_log.flush(trainer)
            save(trainer, self.directory / checkpoint_name(step))
        preemption.end(f"update {step} is saved")
