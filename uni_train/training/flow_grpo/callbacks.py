"""What goes along with reinforcement: rollouts in the checkpoint, an epoch log, alarms."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from uni_train.distributed.ranks import Ranks
from uni_train.errors import UserError
from uni_train.training.callbacks import save
from uni_train.training.checkpoint_io import checkpoint_name
from uni_train.training.flow_grpo.batches import RolloutLoader
from uni_train.training.flow_grpo.module import FlowGrpoModule
from uni_train.training.flow_grpo.rollouts import Drawn, Rollouts
from uni_train.training.flow_grpo.settings import AlarmSettings, FlowGrpoSettings
from uni_train.training.held_out import HeldOut
from uni_train.training.metric_log import JsonlLogger, MetricLog, append_once
from uni_train.training.steps import StepBatch

OnDrawn = Callable[[int, Drawn], None]
"""Called on every rank with the epoch and its own pictures when they have been rewarded."""
OWN = ("latents", "log_probs", "means", "final", "mask", "advantages")
"""Fields of Rollouts that are of one rank's pictures."""
IN_METRICS = ("reward", "reward_std", "best_of_group", "flat_groups", "diversity")
"""Statistics of an epoch that every line of metrics.jsonl repeats."""


class Epochs(Callback):
    """Keeps the rollouts of an unfinished epoch in the checkpoint, and writes a line an epoch to `rollouts.jsonl`:

        {"step": 8, "epoch": 3, "window": [0, 4], "reward": 0.41, ..., "seconds": {"rollout": 1.2, "reward": 0.1,
         "update": 0.9}}

    `step` counts updates done when the epoch ends. Further loggers get the same, times as `seconds/...`.
    """

    def __init__(self, path: Path, settings: FlowGrpoSettings, on_drawn: OnDrawn | None = None) -> None:
        self.file, self.settings, self.on_drawn = JsonlLogger(path), settings, on_drawn
        self.loader: RolloutLoader | None = None
        self.statistics: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._restored: list[dict[str, Any]] | None = None
        self._drawn_at = 0.0
        self._mid = False

    def attach(self, loader: RolloutLoader) -> None:
        """The loader whose rollouts these are; it gets those of a restored checkpoint, dealt anew where there are other
        devices."""
        self.loader = loader
        if self._restored is not None:
            loader.rollouts = Rollouts.from_state_dict(dealt(self._restored, loader.ranks), loader.model.device)
            self._restored = None

    def drawn(self, module: FlowGrpoModule, epoch: int, found: Drawn) -> None:
        """An epoch begins."""
        self.statistics, self._seconds = dict(found.statistics), dict(found.seconds)
        self._drawn_at = time.perf_counter()
        self.show(module)
        if self.on_drawn is not None:
            self.on_drawn(epoch, found)

    def show(self, module: FlowGrpoModule) -> None:
        module.epoch_metrics = {name: self.statistics[name] for name in IN_METRICS}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, FlowGrpoModule)
        self._drawn_at = time.perf_counter()
        if self.statistics:
            self.show(pl_module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        if not batch.last:
            return
        step = batch.step + 1
        self._mid = step % self.settings.updates_per_epoch != 0
        if self._mid:
            return
        assert isinstance(pl_module, FlowGrpoModule) and self.loader is not None and self.loader.rollouts is not None
        pl_module.finish_epoch()
        self._seconds["update"] = self._seconds.get("update", 0.0) + time.perf_counter() - self._drawn_at
        window = self.loader.rollouts.window
        epoch = step // self.settings.updates_per_epoch - 1
        place = None if window is None else [window.start, window.size]
        line = {"step": step, "epoch": epoch, "window": place, **self.statistics, "seconds": dict(self._seconds)}
        append_once(trainer, self.file, [line])
        flat = {**self.statistics, **{f"seconds/{name}": value for name, value in self._seconds.items()}}
        for logger in trainer.loggers:
            if not isinstance(logger, JsonlLogger):
                logger.log_metrics(flat, step=step)

    def state_dict(self) -> dict[str, Any]:
        seconds = dict(self._seconds)
        rollouts = None
        if self._mid and self.loader is not None and self.loader.rollouts is not None:
            state = self.loader.rollouts.state_dict()
            here = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in state.items()}
            rollouts = self.loader.ranks.gather(here)
            seconds["update"] = seconds.get("update", 0.0) + time.perf_counter() - self._drawn_at
        return {"statistics": self.statistics, "seconds": seconds, "rollouts": rollouts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.statistics, self._seconds = state_dict["statistics"], state_dict["seconds"]
        self._restored = state_dict["rollouts"]


def dealt(states: Sequence[Mapping[str, Any]], ranks: Ranks) -> dict[str, Any]:
    """What this rank has of an epoch's rollouts, which were those of `len(states)` ranks."""
    if len(states) == ranks.world_size:
        return dict(states[ranks.rank])
    longest = max(state["final"].shape[-2] for state in states)

    def long(value: Tensor) -> Tensor:
        missing = longest - value.shape[-2] if value.ndim > 2 else 0
        return torch.nn.functional.pad(value, (0, 0, 0, missing)) if missing else value

    whole = {name: torch.cat([long(state[name]) for state in states]) for name in OWN}
    pictures = len(whole["final"]) // ranks.world_size
    first = ranks.rank * pictures
    return {**states[0], **{name: value[first : first + pictures] for name, value in whole.items()}, "first": first}


class Alarms(Callback):
    """Stops a run that has gone wrong or is fooling its reward, after a checkpoint that shows how.

    Raises:
        UserError: an alarm; it names the update.
    """

    def __init__(
        self, alarms: AlarmSettings, epochs: Epochs, held_out: HeldOut | None, log: MetricLog, folder: Path
    ) -> None:
        self.alarms, self.epochs, self.held_out, self.metric_log, self.folder = alarms, epochs, held_out, log, folder
        self.first_diversity: float | None = None
        self.flat = 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        if not batch.last:
            return
        assert isinstance(pl_module, FlowGrpoModule)
        step = batch.step + 1
        found = self._ratio(pl_module.metrics, step)
        if step % self.epochs.settings.updates_per_epoch == 0:
            found = found or self._epoch(self.epochs.statistics, step)
        if found is None:
            return
        message, hint = found
        self.metric_log.flush(trainer)
        path = self.folder / checkpoint_name(step)
        save(trainer, path)
        raise UserError(f"stopped after update {step}: {message}", f"{hint} The weights are in {path}.")

    def _ratio(self, metrics: Mapping[str, Any], step: int) -> tuple[str, str] | None:
        most = self.alarms.log_ratio
        if most is None or "log_ratio_max" not in metrics:
            return None
        worst = float(metrics["log_ratio_max"])
        if worst <= most:  # NaN is an alarm
            return None
        return (
            f"the log ratio of a step is {worst:.3g}, beyond {most:g}: the weights have moved too far from those that "
            "drew",
            "Lower optimizer.lr, or make fewer updates_per_epoch.",
        )

    def _epoch(self, statistics: Mapping[str, float], step: int) -> tuple[str, str] | None:
        del step
        if self.first_diversity is None:
            self.first_diversity = statistics["diversity"]
        least = self.alarms.diversity
        if least is not None and statistics["diversity"] < least * self.first_diversity:
            return (
                f"the pictures of a group differ by {statistics['diversity']:.3g} grey levels, "
                f"{self.first_diversity:.3g} in the first epoch: the model draws the same whatever its noise",
                "Look at the pictures: a reward is being fooled, or the rate is too high. Raise kl.",
            )
        self.flat = self.flat + 1 if statistics["flat_groups"] >= 1 else 0
        if self.alarms.flat_epochs is not None and self.flat >= self.alarms.flat_epochs:
            return (
                f"in {self.flat} epochs no group had rewards that differ, so nothing is learned",
                "Ask easier or harder prompts, raise group_size, or use a denser reward.",
            )
        most = self.alarms.held_out
        if most is not None and self.held_out is not None and self.held_out.scores:
            score, best = self.held_out.scores.get("held_out", 0.0), self.held_out.best
            if score < best - most:
                return (
                    f"the held-out score has fallen from {best:.3f} to {score:.3f} while the training reward is "
                    f"{statistics['reward']:.3f}",
                    "The reward is being fooled or the rate is too high. Lower optimizer.lr, raise kl.",
                )
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"first_diversity": self.first_diversity, "flat": self.flat}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.first_diversity, self.flat = state_dict["first_diversity"], state_dict["flat"]
