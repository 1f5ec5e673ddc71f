"""Held-out scores while a model is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from uni_train.training.callbacks import Evaluate
from uni_train.training.ema import Ema
from uni_train.training.metric_log import JsonlLogger, append_once, truncate_metrics
from uni_train.training.steps import StepBatch
from uni_train.training.strategies.sharding import unsharded

HELD_OUT = "held_out.jsonl"


class HeldOut(Callback):
    """Scores on what is not trained on, before the first update, every `every` updates and after the last.

    With the averaged weights if there are any, the model in eval mode. All ranks ask, so that they can share the work;
    the first one's scores count. One line each in `path`; further loggers get the same. `evaluate` must be a function
    of the weights alone, then a resumed run writes the same lines.
    """

    def __init__(self, evaluate: Evaluate, every: int, path: Path) -> None:
        self.evaluate, self.every, self.file = evaluate, every, JsonlLogger(path)
        self.scores: dict[str, float] = {}
        self.best = float("-inf")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            truncate_metrics(self.file.path, trainer.global_step or -1)  # the look before the first update comes again
        if trainer.global_step == 0:
            self._look(trainer, pl_module, 0)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        step = batch.step + 1
        if batch.last and (step % self.every == 0 or step == trainer.max_steps):
            self._look(trainer, pl_module, step)

    def _look(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        ema = next((one for one in trainer.callbacks if isinstance(one, Ema)), None)  # type: ignore[attr-defined]
        modes = {part: part.training for part in module.modules()}
        module.eval()
        with torch.no_grad(), ema.averaged(module) if ema is not None else unsharded(module):
            found = self.evaluate(step)
            self.scores = trainer.strategy.broadcast({name: float(value) for name, value in found.items()})
        for part, training in modes.items():
            part.training = training
        self.best = max(self.best, self.scores.get("held_out", float("-inf")))
        append_once(trainer, self.file, [{"step": step, **self.scores}])
        for logger in trainer.loggers:
            if not isinstance(logger, JsonlLogger):
                logger.log_metrics(self.scores, step=step)

    def state_dict(self) -> dict[str, Any]:
        return {"scores": self.scores, "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scores, self.best = state_dict["scores"], state_dict["best"]
