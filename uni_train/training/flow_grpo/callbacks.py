"""Callbacks of Flow-GRPO: a line an epoch in rollouts.jsonl, and alarms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from uni_train.config.schema import GrpoConfig
from uni_train.errors import UserError
from uni_train.flow.advantages import ROUNDING
from uni_train.training.after_update import AfterUpdate
from uni_train.training.callbacks import Validation, save, saved
from uni_train.training.checkpoint_io import checkpoint_name
from uni_train.training.flow_grpo.rollout import ScoredImages
from uni_train.training.metric_log import JsonlLogger, MetricLog, append_once

WINDOW = 10  # epochs over which the alarm of collapse averages the reward
OnImages = Callable[[int, ScoredImages], None]
"""Called on every rank with the epoch and the rank's images after their rewards."""


class EpochLog(AfterUpdate):
    """Writes one line an epoch to rollouts.jsonl; further loggers get the same, times as `seconds/...`:

        {"step": 8, "epoch": 3, "window": [0, 4], "reward": 0.41, ..., "seconds": {"rollout": 1.2, "reward": 0.1,
         "update": 0.9}}

    `step` counts updates done when the epoch ends.
    """

    def __init__(self, path: Path, updates_per_epoch: int) -> None:
        self.file, self.updates_per_epoch = JsonlLogger(path), updates_per_epoch

    def after_update(self, trainer: pl.Trainer, module: Any, step: int) -> None:
        if step % self.updates_per_epoch:
            return
        rollouts, seconds = module.rollouts, module.seconds
        window = None if rollouts.window is None else [rollouts.window.start, rollouts.window.size]
        line = {"step": step, "epoch": rollouts.epoch, "window": window, **rollouts.statistics, "seconds": seconds}
        append_once(trainer, self.file, [line])
        flat = {**rollouts.statistics, **{f"seconds/{name}": value for name, value in seconds.items()}}
        for logger in trainer.loggers:
            if not isinstance(logger, JsonlLogger):
                logger.log_metrics(flat, step=step)


class Alarms(AfterUpdate):
    """Stops a run that diverges or exploits its reward, at the end of an epoch, after a checkpoint.

    Raises:
        UserError: an alarm; it names the update.
    """

    def __init__(self, config: GrpoConfig, validation: Validation | None, log: MetricLog, folder: Path) -> None:
        self.alarms, self.updates_per_epoch, self.validation = config.alarms, config.updates_per_epoch, validation
        self.metric_log, self.folder = log, folder
        self.by_batch = config.objective.baseline == "batch"
        self.log_ratios: list[Tensor] = []  # the largest of each update of the epoch
        self.first: dict[str, float] = {}  # of the first epoch's images: diversity, brightness, contrast
        self.zero_std = 0
        self.rewards: list[float] = []  # of the last WINDOW epochs
        self.best_reward = 0.0  # the largest mean of WINDOW epochs

    def after_update(self, trainer: pl.Trainer, module: Any, step: int) -> None:
        if "log_ratio_max" in module.metrics:
            self.log_ratios.append(module.metrics["log_ratio_max"])
        if step % self.updates_per_epoch:
            return
        alarm = self._ratio() or self._epoch(module.rollouts.statistics)
        self.log_ratios.clear()
        if alarm is None:
            return
        message, hint = alarm
        self.metric_log.flush(trainer)
        path = self.folder / checkpoint_name(step)
        save(trainer, path)
        saved(trainer)
        raise UserError(f"stopped after update {step}: {message}", f"{hint} The weights are in {path}.")

    def _ratio(self) -> tuple[str, str] | None:
        most = self.alarms.log_ratio
        if most is None or not self.log_ratios:
            return None
        worst = float(torch.stack(self.log_ratios).max())
        if worst <= most:  # NaN is an alarm
            return None
        return (
            f"the log ratio of a step is {worst:.3g}, beyond {most:g}: the weights have moved too far from those that "
            "sampled",
            "Lower optimizer.lr, or make fewer updates_per_epoch.",
        )

    def _epoch(self, statistics: Mapping[str, float]) -> tuple[str, str] | None:
        if not self.first:
            self.first = {name: statistics[name] for name in ("diversity", "brightness", "contrast")}
        least, most = self.alarms.diversity, self.alarms.drift
        hint = "Look at the images: they exploit a reward, or the learning rate is too high. Raise kl."
        if least is not None and statistics["diversity"] < least * self.first["diversity"]:
            return (
                f"the images of a group differ by {statistics['diversity']:.3g} grey levels, "
                f"{self.first['diversity']:.3g} in the first epoch: the model ignores its noise",
                hint,
            )
        for name in ("brightness", "contrast"):
            before = self.first[name]
            if most is not None and abs(statistics[name] - before) > most * before:
                return f"the {name} of images is {statistics[name]:.3g}, {before:.3g} in the first epoch", hint
        flat = statistics["reward_std"] <= ROUNDING * max(1, abs(statistics["reward"]))
        equal = flat if self.by_batch else statistics["frac_reward_zero_std"] >= 1
        self.zero_std = self.zero_std + 1 if equal else 0
        if self.alarms.zero_std_epochs is not None and self.zero_std >= self.alarms.zero_std_epochs:
            unit = "two images" if self.by_batch else "group"
            return (
                f"in {self.zero_std} epochs no {unit} had rewards that differ, so nothing is learned",
                "Ask easier or harder prompts, raise group_size, or use a denser reward.",
            )
        self.rewards = [*self.rewards, statistics["reward"]][-WINDOW:]
        if self.alarms.collapse is not None and len(self.rewards) == WINDOW:
            reward = sum(self.rewards) / WINDOW
            if self.best_reward > 0 and reward < self.alarms.collapse * self.best_reward:
                return (
                    f"the mean reward of {WINDOW} epochs has fallen from {self.best_reward:.3f} to {reward:.3f}",
                    "The learning rate is too high for a run of this length. Lower optimizer.lr, raise kl.",
                )
            self.best_reward = max(self.best_reward, reward)
        most = self.alarms.held_out
        if most is not None and self.validation is not None and self.validation.scores:
            score, best = self.validation.scores.get("held_out", 0.0), self.validation.best
            if score < best - most:
                return (
                    f"the held-out score has fallen from {best:.3f} to {score:.3f} while the training reward is "
                    f"{statistics['reward']:.3f}",
                    "The images exploit the reward, or the learning rate is too high. Lower optimizer.lr, raise kl.",
                )
        return None

    def state_dict(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "zero_std": self.zero_std,
            "rewards": self.rewards,
            "best_reward": self.best_reward,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.first, self.zero_std = dict(state_dict["first"]), state_dict["zero_std"]
        self.rewards, self.best_reward = list(state_dict["rewards"]), state_dict["best_reward"]
