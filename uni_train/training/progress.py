"""A progress line for a fit: updates done, rate, time left, loss.

Lightning's RichProgressBar counts epochs and batches and needs every metric through `self.log`. That costs more than
the rest of its loop; this one shows what the metric log has read anyway.
"""

from __future__ import annotations

import sys
import time

import lightning.pytorch as pl
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from uni_train.training.after_update import AfterUpdate
from uni_train.training.metric_log import MetricLog

REFRESH_SECONDS = 0.5
LINE_SECONDS = 30.0


class StepProgress(AfterUpdate):
    """Shows a fit as a line of the terminal; where there is none, prints a line every 30 s."""

    def __init__(self, description: str, metric_log: MetricLog) -> None:
        self.description, self.metric_log = description, metric_log
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[loss]}"),
            auto_refresh=False,
        )
        self.plain = not self.progress.console.is_terminal
        self._task: TaskID | None = None
        self._first, self._began, self._shown = 0, 0.0, 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._first, self._began = trainer.global_step, time.perf_counter()
        self._shown = self._began
        if not trainer.is_global_zero or self.plain:
            return
        self.progress.start()
        self._task = self.progress.add_task(
            self.description, total=trainer.max_steps, completed=trainer.global_step, rate="", loss=""
        )

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        now = time.perf_counter()
        if step < trainer.max_steps and now - self._shown < (LINE_SECONDS if self.plain else REFRESH_SECONDS):
            return
        self._shown = now
        rate = (step - self._first) / max(now - self._began, 1e-9)
        loss = f"loss {self.metric_log.latest['loss']:z.4f}" if self.metric_log.latest else ""
        if self._task is not None:
            self.progress.update(self._task, completed=step, rate=f"{rate:.1f}/s", loss=loss, refresh=True)
        elif self.plain and trainer.is_global_zero:
            left = (trainer.max_steps - step) / rate
            line = f"{self.description}: {step}/{trainer.max_steps}, {rate:.1f}/s, {left:.0f} s left, {loss}"
            print(line, flush=True)

    def _stop(self) -> None:
        if self._task is not None:
            self.progress.stop()
        self._task = None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()
        sys.stdout.flush()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._stop()
