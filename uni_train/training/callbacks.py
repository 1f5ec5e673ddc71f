"""The callbacks that a resumable run needs beside its metric log: checkpoints, validation, the curriculum's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint
from torch import nn

from uni_train.distributed import preemption
from uni_train.distributed.ranks import Ranks
from uni_train.distributed.watchdog import note
from uni_train.training.after_update import AfterUpdate
from uni_train.training.averages import Averages, put
from uni_train.training.checkpoint_io import FolderCheckpointIO, checkpoint_name
from uni_train.training.curriculum import Curriculum
from uni_train.training.ema import Ema
from uni_train.training.metric_log import JsonlLogger, MetricLog, append_once, truncate_metrics
from uni_train.training.strategies.sharding import unsharded

Evaluate = Callable[[int], Mapping[str, float]]
"""Validation metrics after so many updates; called with the model in eval mode and without gradients."""


class PeriodicCheckpoint(AfterUpdate, Checkpoint):
    """Saves after every `every`-th update and after the last, which it waits for.

    Simpler than Lightning's ModelCheckpoint where no metric decides: no absolute paths in its state. As a `Checkpoint`
    it runs after all other callbacks.
    """

    def __init__(self, directory: Path, every: int, metric_log: MetricLog) -> None:
        self.directory, self.every, self.metric_log = Path(directory), every, metric_log

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        if step % self.every and step != trainer.max_steps:
            return
        self.metric_log.flush(trainer)
        save(trainer, self.directory / checkpoint_name(step))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        saved(trainer)


def save(trainer: pl.Trainer, path: Path) -> None:
    """Begin to write a checkpoint when the one before is written; all ranks call it. Raises UserError as `saved`."""
    saved(trainer)
    trainer.save_checkpoint(path)


def saved(trainer: pl.Trainer) -> None:
    """Return when the last checkpoint is written; all ranks call it.

    Raises:
        UserError: a rank could not write it. All ranks raise it, which else would wait for that one.
    """
    writer = trainer.strategy.checkpoint_io
    assert isinstance(writer, FolderCheckpointIO)
    Ranks(trainer.global_rank, trainer.world_size).on_all(writer.wait)


class SaveOnSignal(AfterUpdate, Checkpoint):
    """Saves and ends a fit after a multiple of `unit` updates if any rank got a signal; every update is noted.

    `uni_train.distributed.preemption` receives the signal. It comes after PeriodicCheckpoint, which saves every `every`
    updates.
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


class Unshard(Callback):
    """Gives the module plain parameters again when training on sharded ones ends; must be the last callback."""

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        saved(trainer)  # its copy goes before the whole weights come
        trainer.strategy.unshard()  # type: ignore[attr-defined]


def evaluated(trainer: pl.Trainer, module: pl.LightningModule, evaluate: Evaluate, step: int) -> dict[str, float]:
    """`evaluate(step)` with the averaged weights where there are any, the model in eval mode.

    All ranks call it, so that they can share the work; the result of rank 0 counts.
    """
    ema = next((callback for callback in trainer.callbacks if isinstance(callback, Ema)), None)  # type: ignore[attr-defined]
    modes = {part: part.training for part in module.modules()}
    module.eval()
    with torch.no_grad(), ema.averaged(module) if ema is not None else unsharded(module):
        metrics = {name: float(value) for name, value in evaluate(step).items()}
    for part, training in modes.items():
        part.training = training
    return trainer.strategy.broadcast(metrics)


class Validation(AfterUpdate):
    """Scores on what is not trained on, before the first update, every `every` updates and after the last.

    One line each in `path`; further loggers get the same. `evaluate` must be a function of the weights alone, then a
    resumed run writes the same lines. `scores` are the latest, `best` is the best "held_out" of them.
    """

    def __init__(self, evaluate: Evaluate, every: int, path: Path) -> None:
        self.evaluate, self.every, self.file = evaluate, every, JsonlLogger(path)
        self.scores: dict[str, float] = {}
        self.best = float("-inf")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            truncate_metrics(self.file.path, trainer.global_step or -1)  # that before the first update comes again
        if trainer.global_step == 0:
            self._validate(trainer, pl_module, 0)

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        if step % self.every == 0 or step == trainer.max_steps:
            self._validate(trainer, module, step)

    def _validate(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        self.scores = evaluated(trainer, module, self.evaluate, step)
        self.best = max(self.best, self.scores.get("held_out", float("-inf")))
        append_once(trainer, self.file, [{"step": step, **self.scores}])
        for logger in trainer.loggers:
            if not isinstance(logger, JsonlLogger):
                logger.log_metrics(self.scores, step=step)

    def state_dict(self) -> dict[str, Any]:
        return {"scores": self.scores, "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scores, self.best = state_dict["scores"], state_dict["best"]


class EarlyStop(AfterUpdate):
    """Ends a training early: at the first check that `passed`; without one it ends after all of its updates.

    It checks every `every` updates from `least` updates on. `passed` gets the number of updates and must otherwise be a
    function of the weights alone. Then a resumed fit ends where an unbroken one does.

    Attributes:
        ended: updates after which `passed` was true; None as long as it was not.
    """

    def __init__(self, passed: Callable[[int], bool], every: int, least: int = 0) -> None:
        self.passed, self.every, self.least = passed, every, least
        self.ended: int | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.ended is not None:  # a checkpoint of the last update, whose fit was killed before it ended
            trainer.should_stop = True

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        if step % self.every or step < self.least:
            return
        if evaluated(trainer, module, lambda step: {"passed": self.passed(step)}, step)["passed"]:
            self.ended = step
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        return {"ended": self.ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.ended = state_dict["ended"]


class CurriculumCallback(AfterUpdate):
    """Keeps a curriculum's state in the checkpoint and shows it validation metrics every `check_every` updates.

    `evaluate` runs between two updates. It is a part of the training, so it should depend on the weights and its
    argument alone. Then a resumed run takes the same decisions.
    """

    def __init__(self, curriculum: Curriculum, evaluate: Evaluate | None, metric_log: MetricLog) -> None:
        self.curriculum, self.evaluate, self.metric_log = curriculum, evaluate, metric_log

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        every = self.curriculum.check_every
        if every is None or self.evaluate is None or step % every:
            return
        metrics = evaluated(trainer, module, self.evaluate, step)
        self.curriculum.observe(step, metrics)
        self.metric_log.flush(trainer)
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=step)

    def state_dict(self) -> dict[str, Any]:
        return self.curriculum.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.curriculum.load_state_dict(state_dict)


class EmaTeacher(Averages, AfterUpdate):
    """A teacher whose weights are an average of its student's: teacher <- decay teacher + (1 - decay) student.

    The average is in the checkpoints.
    """

    def __init__(self, teacher: nn.Module, student: nn.Module, decay: float) -> None:
        super().__init__(decay)
        self.teacher, self.student = teacher, student

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        if not self.averages:
            self.start(self.teacher, {name for name, weight in self.student.named_parameters() if weight.requires_grad})
        self.update(self.student)
        put(self.teacher, self.averages)

    def state_dict(self) -> dict[str, Any]:
        return {"averages": self.averages}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.averages = dict(state_dict["averages"])
        put(self.teacher, self.averages)
