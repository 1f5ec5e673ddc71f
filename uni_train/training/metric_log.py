"""The metric log of a run: every update one JSON line, the same lines whether the run was interrupted or not.

    {"step": 17, "loss": 0.81, "ce": 0.31, "mse": 0.5, "grad_norm": 0.93, "lr": 0.001, "tokens": 4096.0}

`step` counts updates done. Times are not in it, because they differ from run to run; loggers other than `JsonlLogger`
get them too.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_text
from uni_train.core.reading_limits import parse_json, read_text, reason
from uni_train.distributed.ranks import Ranks
from uni_train.training.after_update import AfterUpdate
from uni_train.training.divergence import RISE, Stopped, diverged
from uni_train.training.supervised import SupervisedModule


class JsonlLogger(Logger):
    """A Lightning logger that appends to one file.

    Each line is flushed at once. So a killed process loses no line that a later checkpoint counts on.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = Path(path)

    @property
    def name(self) -> str:
        return "jsonl"

    @property
    def version(self) -> str:
        return ""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.append([{"step": step, **metrics}])

    @rank_zero_only
    def append(self, lines: list[dict[str, Any]]) -> None:
        """Write whole lines. Raises UserError when the file cannot be written."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}", "Make room or fix the folder.") from error

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The run folder has the settings already."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metric log; a last line that was cut short is left out.

    Raises:
        UserError: a line before the last one does not parse; names the file and the line.
    """
    path = Path(path)
    if not path.exists():
        return []
    texts = read_text(path).split("\n")
    lines = []
    for number, text in enumerate(texts[:-1], start=1):
        try:
            lines.append(parse_json(text, path, number, nan=True))
        except ValueError as error:
            raise UserError(f"{path}:{number}: not JSON ({reason(error)})", "Delete the line, or the file.") from error
    # What follows the last newline is empty, or was being written when the process ended.
    return lines


def truncate_metrics(path: Path, step: int) -> None:
    """Drop the lines after update `step`, which a resumed run is going to write again. Of several ranks one must do it:
    two at once would take each other's new file away."""
    path = Path(path)
    if not path.exists():
        return
    lines = read_metrics(path)
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or not isinstance(line.get("step"), int | float):
            raise UserError(f"{path}:{number}: not a line of a log: it has no step", "Delete the line, or the file.")
    kept = [line for line in lines if line["step"] <= step]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    if text != path.read_text(encoding="utf-8"):
        atomic_write_text(path, text)


def append_once(trainer: pl.Trainer, file: JsonlLogger, lines: list[dict[str, Any]]) -> None:
    """Write whole lines on the first rank; all ranks call it, and where it fails, all raise its UserError."""
    Ranks(trainer.global_rank, trainer.world_size).on_all(lambda: file.append(lines))


class MetricLog(AfterUpdate):
    """Collects the module's metrics of every update and hands them to the loggers every `every` updates.

    They stay on the device until then: one read from it per `every` updates, not one per update. A checkpoint flushes
    first, so it never counts updates that the log lacks. `say` shows a line: a first loss that no model has, and a
    first interval in which nothing was learned.
    """

    def __init__(self, every: int, say: Callable[[str], object] = print) -> None:
        self.every, self.say = every, say
        self.latest: dict[str, float] = {}
        self.first: dict[str, float] = {}  # ce and mse of the first updates that have such tokens
        self.seconds = 0.0
        self._pending: list[tuple[int, float, dict[str, Tensor]]] = []
        self._resumed_at = self._flushed_at = time.perf_counter()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._resumed_at = self._flushed_at = time.perf_counter()

    def after_update(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        assert isinstance(module, SupervisedModule)
        self._pending.append((step, module.used_lr, dict(module.metrics)))
        if step % self.every == 0 or step == trainer.max_steps:
            self.flush(trainer)

    def flush(self, trainer: pl.Trainer) -> None:
        """Read what is pending from the device and log it.

        Raises:
            Stopped: the loss is not finite, or far above that of the first updates; the updates before are logged.
        """
        if not self._pending:
            return
        names = list(self._pending[0][2])
        values = torch.stack([torch.stack([m[n].float() for n in names]) for _, _, m in self._pending]).tolist()
        lines: list[dict[str, Any]] = [
            {"step": step, **dict(zip(names, row, strict=True)), "lr": lr}
            for (step, lr, _), row in zip(self._pending, values, strict=True)
        ]
        self._pending.clear()
        self._look_at(lines)
        problem, bad = next(((why, line) for line in lines if (why := diverged(line, self.first))), (None, None))
        lines = lines if bad is None else lines[: lines.index(bad)]
        now = time.perf_counter()
        passed, self._flushed_at = now - self._flushed_at, now
        speed = {
            "updates_per_second": len(lines) / passed,
            "tokens_per_second": sum(line["tokens"] for line in lines) / passed,
        }
        for logger in trainer.loggers:
            if isinstance(logger, JsonlLogger):
                append_once(trainer, logger, lines)
            else:
                for line in lines:
                    rates = speed if line is lines[-1] else {}
                    logger.log_metrics({k: v for k, v in line.items() if k != "step"} | rates, step=line["step"])
        if problem is not None:
            raise Stopped(f"training diverged: {problem}", "Lower optimizer.lr or clip, or raise warmup_updates.")
        self.latest = {**lines[-1], **speed}

    def _look_at(self, lines: list[dict[str, Any]]) -> None:
        for name in ("ce", "mse"):
            value = next((line[name] for line in lines if line.get(name)), None)
            if name not in self.first and value is not None:
                self.first[name] = value
                if value > RISE:
                    self.say(f"  the first {name} is {value:.3g}: damaged weights, or data of another scale")
        if lines[0]["step"] == 1 and all(line.get("grad_norm") == 0 for line in lines):
            self.say(f"  nothing was learned in {len(lines)} updates: all their gradients are 0")

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        if isinstance(exception, Stopped):  # on all ranks
            self.flush(trainer)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds + time.perf_counter() - self._resumed_at, "first": self.first}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.first = state_dict["seconds"], dict(state_dict["first"])

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seconds += time.perf_counter() - self._resumed_at
        self._resumed_at = time.perf_counter()
