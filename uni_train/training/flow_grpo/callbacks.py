"""Callbacks of Flow-GRPO: a line an epoch in rollouts.jsonl, and alarms."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from uni_train.flow.advantages import ROUNDING
from uni_train.training.after_update import AfterUpdate
from uni_train.training.callbacks import Validation, save, saved
from uni_train.training.checkpoint_io import ALARM, checkpoint_name
from uni_train.training.divergence import Stopped
from uni_train.training.flow_grpo.config import GrpoConfig
from uni_train.training.metric_log import JsonlLogger, MetricLog, append_once

WINDOW = 10  # epochs over which the alarm of collapse averages the reward


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
        rollouts = module.rollouts
        seconds = {**rollouts.seconds, "update": time.perf_counter() - module.sampled_at}
        window = None if rollouts.window is None else [rollouts.window.start, rollouts.window.size]
        line = {"step": step, "epoch": rollouts.epoch, "window": window, **rollouts.statistics, "seconds": seconds}
        append_once(trainer, self.file, [line])
        flat = {**rollouts.statistics, **{f"seconds/{name}": value for name, value in seconds.items()}}
        for logger in trainer.loggers:
            if not isinstance(logger, JsonlLogger):
                logger.log_metrics(flat, step=step)


class Alarms(AfterUpdate):
    """Stops a run that diverges or exploits its reward, at the end of an epoch.

    The weights are then in a checkpoint of another name, `alarm=00000008`, from which no training continues.

    Raises:
        Stopped: an alarm; it names the update.
    """

    def __init__(self, config: GrpoConfig, validation: Validation | None, log: MetricLog, folder: Path) -> None:
        self.config, self.validation, self.metric_log, self.folder = config, validation, log, folder
        self.log_ratios: list[Tensor] = []  # the largest of each update of the epoch
        self.first: dict[str, float] = {}  # of the first epoch's images: diversity, brightness, contrast
        self.zero_std, self.warned = 0, False
        self.rewards: list[float] = []  # of the last WINDOW epochs
        self.best_reward = 0.0  # the largest mean of WINDOW epochs

    def after_update(self, trainer: pl.Trainer, module: Any, step: int) -> None:
        if "log_ratio_max" in module.metrics:
            self.log_ratios.append(module.metrics["log_ratio_max"])
        if step % self.config.updates_per_epoch:
            return
        for limit, alarm, message, hint in self._alarms(module.rollouts.statistics):
            if limit is None or not alarm(limit):
                continue
            self.metric_log.flush(trainer)
            path = self.folder / checkpoint_name(step, ALARM)
            save(trainer, path)
            saved(trainer)
            raise Stopped(f"stopped after update {step}: {message}", f"{hint} The weights are in {path}.")

    def _alarms(self, now: Mapping[str, float]) -> list[tuple[float | None, Callable[[float], bool], str, str]]:
        """Limit, whether it is passed, what is said and what to do, after an epoch with the statistics `now`."""
        ratio = float(torch.stack(self.log_ratios).max()) if self.log_ratios else 0.0
        self.log_ratios.clear()
        first = self.first = self.first or {name: now[name] for name in ("diversity", "brightness", "contrast")}
        by_batch = self.config.objective.baseline == "batch"
        flat = now["reward_std"] <= ROUNDING * max(1, abs(now["reward"]))
        self.zero_std = self.zero_std + 1 if (flat if by_batch else now["frac_reward_zero_std"] >= 1) else 0
        pair = "two images" if by_batch else "group"
        if self.zero_std and not self.warned:
            self.warned = True
            self.metric_log.say(
                f"  in an epoch no {pair} had rewards that differ (mean {now['reward']:z.3f}): "
                "rewards taught nothing in it"
            )
        self.rewards = [*self.rewards, now["reward"]][-WINDOW:]
        best = self.best_reward
        mean = sum(self.rewards) / WINDOW if len(self.rewards) == WINDOW else best
        self.best_reward = max(best, mean)
        scores, highest = (self.validation.scores, self.validation.best) if self.validation is not None else ({}, 0.0)
        score = scores.get("held_out", 0.0) if scores else highest
        limits, slower = self.config.alarms, "the learning rate is too high. Lower optimizer.lr, raise kl."
        hacked = "Look at the images: they exploit a reward, or the learning rate is too high. Raise kl."
        return [
            (limits.log_ratio, lambda most: not ratio <= most,  # NaN is an alarm
             f"the log ratio of a step is {ratio:.3g}, beyond {limits.log_ratio}: the weights have moved too far from "
             "those that sampled", "Lower optimizer.lr, or make fewer updates_per_epoch."),
            (limits.diversity, lambda least: now["diversity"] < least * first["diversity"],
             f"the images of a group differ by {now['diversity']:.3g} grey levels, {first['diversity']:.3g} in the "
             "first epoch: the model ignores its noise", hacked),
            *((limits.drift, lambda most, name=name: abs(now[name] - first[name]) > most * first[name],
               f"the {name} of images is {now[name]:.3g}, {first[name]:.3g} in the first epoch", hacked)
              for name in ("brightness", "contrast")),
            (limits.zero_std_epochs, lambda most: self.zero_std >= most,
             f"in {self.zero_std} epochs no {pair} had rewards that differ, so nothing is learned",
             "Ask easier or harder prompts, raise group_size, or use a denser reward."),
            (limits.collapse, lambda least: best > 0 and mean < least * best,
             f"the mean reward of {WINDOW} epochs has fallen from {best:z.3f} to {mean:z.3f}",
             f"For a run of this length {slower}"),
            (limits.held_out, lambda most: score < highest - most,
             f"the held-out score has fallen from {highest:z.3f} to {score:z.3f} while the training reward is "
             f"{now['reward']:z.3f}", f"The images exploit the reward, or {slower}"),
        ]  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("first", "zero_std", "rewards", "best_reward")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)
