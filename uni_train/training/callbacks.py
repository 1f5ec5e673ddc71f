"""The callbacks that a resumable run needs beside its metric log: checkpoints and the curriculum's state."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint

from uni_train.distributed.ranks import Ranks
from uni_train.training.checkpoint_io import FolderCheckpointIO, checkpoint_name, list_checkpoints
from uni_train.training.curriculum import Curriculum
from uni_train.training.ema import Ema
from uni_train.training.metric_log import MetricLog
from uni_train.training.steps import StepBatch
from uni_train.training.strategies.sharding import unsharded

Evaluate = Callable[[int], Mapping[str, float]]
"""Validation metrics after so many updates; called with the model in eval mode and without gradients."""


class PeriodicCheckpoint(Checkpoint):
    """Saves after every `every`-th update and after the last, and keeps the newest `keep`.

    Simpler than Lightning's ModelCheckpoint where no metric decides: no absolute paths in its state, and what it
    prunes is what is on the disk, whoever wrote it. As a `Checkpoint` it runs after all other callbacks.
    """

    def __init__(self, directory: Path, every: int, keep: int, metric_log: MetricLog) -> None:
        self.directory, self.every, self.keep, self.metric_log = Path(directory), every, keep, metric_log

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        step = batch.step + 1
        if not batch.last or (step % self.every and step != trainer.max_steps):
            return
        self.metric_log.flush(trainer)
        save(trainer, self.directory / checkpoint_name(step))
        if trainer.is_global_zero:
            for path in list_checkpoints(self.directory)[: -self.keep]:
                shutil.rmtree(path, ignore_errors=True)


def save(trainer: pl.Trainer, path: Path) -> None:
    """Write a checkpoint; all ranks call it.

    Raises:
        UserError: the first rank could not write it. All ranks raise it, which else would wait for the first.
    """
    trainer.save_checkpoint(path)
    writer = trainer.strategy.checkpoint_io
    assert isinstance(writer, FolderCheckpointIO)
    Ranks(trainer.global_rank, trainer.world_size).on_all(writer.check)


class WholeAgain(Callback):
    """When training ends the weights are whole on every rank, in plain parameters; must be the last to look at them."""

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.strategy.whole_again()  # type: ignore[attr-defined]


class CurriculumCallback(Callback):
    """Keeps a curriculum's state in the checkpoint and shows it validation metrics every `check_every` updates.

    `evaluate` runs between two updates, with the averaged weights where there are any. Its result on the first rank
    counts for all. It belongs to the training like a batch does, so it should be a function of the weights and of its
    argument alone: then a resumed run takes the same decisions.
    """

    def __init__(
        self, curriculum: Curriculum, evaluate: Evaluate | None, metric_log: MetricLog, ema: Ema | None = None
    ) -> None:
        self.curriculum, self.evaluate, self.metric_log, self.ema = curriculum, evaluate, metric_log, ema

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        every, step = self.curriculum.check_every, batch.step + 1
        if every is None or self.evaluate is None or not batch.last or step % every:
            return
        modes = {module: module.training for module in pl_module.modules()}
        pl_module.eval()
        with torch.no_grad(), self.ema.averaged(pl_module) if self.ema else unsharded(pl_module):
            metrics = {name: float(value) for name, value in self.evaluate(step).items()}
        for module, training in modes.items():
            module.training = training
        metrics = trainer.strategy.broadcast(metrics)
        self.curriculum.observe(step, metrics)
        self.metric_log.flush(trainer)
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=step)

    def state_dict(self) -> dict[str, Any]:
        return self.curriculum.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.curriculum.load_state_dict(state_dict)
