"""Saves and ends a fit at its next possible checkpoint on a signal (uni_train.distributed.preemption)."""

from __future__ import annotations

from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint

from uni_train.distributed import preemption
from uni_train.distributed.watchdog import note
from uni_train.training.after_update import AfterUpdate
from uni_train.training.callbacks import save, saved
from uni_train.training.checkpoint_io import checkpoint_name
from uni_train.training.metric_log import MetricLog


class SaveOnSignal(AfterUpdate, Checkpoint):
    """Saves and ends after a multiple of `unit` updates if any rank got a signal; every update is noted.

    Comes after PeriodicCheckpoint, which saves every `every` updates.
    """

    def __init__(self, directory: Path, every: int, metric_log: MetricLog, unit: int = 1) -> None:
        self.directory, self.every, self.metric_log, self.unit = Path(directory), every, metric_log, unit

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        preemption.listen()

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        note()
        if step % self.unit or step == trainer.max_steps or not preemption.agreed():
            return
        if step % self.every:  # else it is saved already
            self.metric_log.flush(trainer)
            save(trainer, self.directory / checkpoint_name(step))
        saved(trainer)
        preemption.end(f"update {step} is saved")
