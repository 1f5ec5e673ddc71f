"""Direct preference optimisation of images, on pairs of a right and a wrong image of a prompt (uni_train/flow/dpo.py).

An update draws pairs as supervised training draws examples. Both images of a pair get the same seed, so the same noise
and noise levels; each noised image of the chosen one stands against the one of the same number of the rejected one.

    loss = mean over noised pairs of dpo_loss + sft_weight * error of the chosen image

The reference are the weights that the stage starts from: adapters switched off, or a copy of the trained weights. Rows
that are replayed are examples, and their supervised loss is added.

Left out on purpose: `ce_weight` and `mse_weight` act on replayed rows alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uni_train.config.kinds import Updates
from uni_train.config.schema import TrainingConfig
from uni_train.flow.dpo import dpo_loss, implicit_reward
from uni_train.models.base import Example, SupervisedLoss, Trainable
from uni_train.training.callbacks import CurriculumCallback, Evaluate
from uni_train.training.curriculum import Curriculum
from uni_train.training.fit import FitResult, MixedModule, Run, run
from uni_train.training.second_weights import Reference
from uni_train.training.steps import Source, StepBatch
from uni_train.training.strategies.choice import current_ranks, on_ranks
from uni_train.training.supervised import FitOptions

METRICS = ("dpo", "accuracy", "chosen_reward", "rejected_reward", "chosen_error", "rejected_error", "tokens")
"""Means over the noised pairs of an update, and their latent tokens; accuracy: the share whose chosen image has the
higher implicit reward."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Two images of one prompt: examples that differ in their targets' pixels alone. seed: of the noise of both."""

    chosen: Example
    rejected: Example
    seed: int = 0

    def example(self) -> Example:
        """The chosen one, whose texts are those of both."""
        return replace(self.chosen, seed=self.seed)

    def both(self) -> tuple[Example, Example]:
        return self.example(), replace(self.rejected, seed=self.seed)


@dataclass(slots=True)
class PreferenceBatch:
    """A micro-batch of so many pairs: both sides, and replayed rows, as the model collates them; None where none is."""

    pairs: int
    chosen: Any
    rejected: Any
    replayed: Any


@dataclass(frozen=True, slots=True)
class DpoSettings:
    """beta: how fast the loss falls with the rewards' difference. sft_weight: of the error of chosen images."""

    beta: float
    sft_weight: float


def fit_dpo(
    model: Trainable,
    sources: Mapping[str, Source],
    schedule: Curriculum,
    config: TrainingConfig,
    updates: Updates,
    directory: Path,
    options: FitOptions,
    settings: DpoSettings,
    *,
    replayed: Collection[str] = (),
    evaluate: Evaluate | None = None,
) -> FitResult:
    """Train `model` in place on sources of `Preference`, and of examples (`replayed`); else as `fit.fit_supervised`.

    Under strategies that shard weights adapters alone can be trained.
    """
    config, updates = on_ranks(config), updates.shared(current_ranks().world_size)

    def prepare(made: Run) -> DpoModule:
        module = DpoModule(model, config, updates, options)
        module.sources, module.schedule, module.collate = sources, schedule, module.collated
        module.token_counts = module.counted
        module.settings, module.replayed = settings, frozenset(replayed)
        module.reference = Reference(model, module.trained_names)
        model.eval()  # dropout of adapters would tell the model from its reference
        made.callbacks.append(CurriculumCallback(schedule, evaluate, made.log))
        return module

    return run(model, config, updates, directory, prepare, options, schedule=schedule)


class DpoModule(MixedModule):
    """The supervised loss of replayed rows, and that of preferences.

    After the last micro-batch `metrics` also has METRICS, and `margin`: the chosen reward less the rejected one.
    """

    settings: DpoSettings
    replayed: frozenset[str]
    reference: Reference
    _means: Tensor

    def collated(self, rows: Sequence[Any], seed: int) -> PreferenceBatch:
        """`Trainable.collate` of rows among which are preferences."""
        pairs = [row.both() for row in rows if isinstance(row, Preference)]
        sides = [[chosen for chosen, _ in pairs], [rejected for _, rejected in pairs]]
        replayed = [row for row in rows if not isinstance(row, Preference)]
        parts = [self.model.collate(part, seed) if part else None for part in (*sides, replayed)]
        return PreferenceBatch(len(pairs), *parts)

    def counted(self, content: PreferenceBatch) -> tuple[int, int]:
        """Tokens of the replayed rows, as `Trainable.token_counts`."""
        return (0, 0) if content.replayed is None else self.model.token_counts(content.replayed)  # type: ignore

    def training_step(self, batch: StepBatch, batch_idx: int) -> Tensor:
        content: PreferenceBatch = batch.content
        total = super().training_step(replace(batch, content=content.replayed), batch_idx)
        means = torch.zeros(len(METRICS), device=self.device)
        if content.pairs:
            loss, means = self._preferences(batch, content)
            # DDP averages gradients over ranks and Lightning over micro-batches, but these are parts of one sum.
            total = total + loss * (batch.grad_accumulation_steps * self.trainer.world_size)
        self._means = means if batch.micro == 0 else self._means + means
        if batch.last:
            self._gather_metrics()
        return total

    def _loss(self, batch: StepBatch) -> SupervisedLoss:
        if batch.content is None:
            return SupervisedLoss(*torch.zeros(4, device=self.device))
        return super()._loss(batch)

    def _preferences(self, batch: StepBatch, content: PreferenceBatch) -> tuple[Tensor, Tensor]:
        """These pairs' share of an update's loss, and of its METRICS."""
        sides = [replace(batch, content=side) for side in (content.chosen, content.rejected)]
        with self.reference.active():
            before = [_errors(self._loss(side)) for side in sides]
        losses = [self._loss(side) for side in sides]
        errors = [_errors(loss) for loss in losses]
        chosen, rejected = (
            implicit_reward(now, then, self.settings.beta) for now, then in zip(errors, before, strict=True)
        )
        loss = dpo_loss(chosen, rejected)
        pairs = sum(rows for name, rows in self.dataset.counts(batch.step).items() if name not in self.replayed)
        share = content.pairs / (pairs * len(loss))  # of a noised pair
        parts = [loss, (chosen > rejected).float(), chosen, rejected, *errors]
        tokens = losses[0].mse_tokens + losses[1].mse_tokens
        means = torch.stack([*(part.detach().float().sum() * share for part in parts), tokens])
        return (loss + self.settings.sft_weight * errors[0]).sum() * share, means

    def _gather_metrics(self) -> None:
        """Metrics of the update over all ranks."""
        of = self.metrics if self.replayed else {"loss": self.metrics["loss"], "tokens": torch.zeros(())}
        means = self._means
        if self.trainer.world_size > 1:
            means = self.trainer.strategy.reduce(means, reduce_op="sum")
        self.metrics = of = {**of, **dict(zip(METRICS, [*means[:-1], means[-1] + of["tokens"]], strict=True))}
        of["margin"] = of["chosen_reward"] - of["rejected_reward"]
        of["loss"] = of["loss"] + of["dpo"] + self.settings.sft_weight * of["chosen_error"]

    def transfer_batch_to_device(self, batch: StepBatch, device: torch.device, dataloader_idx: int) -> StepBatch:
        content: PreferenceBatch = batch.content
        moved = [
            super(DpoModule, self)
            .transfer_batch_to_device(replace(batch, content=part), device, dataloader_idx)
            .content
            for part in (content.chosen, content.rejected, content.replayed)
        ]
        return replace(batch, content=PreferenceBatch(content.pairs, *moved))


def _errors(loss: SupervisedLoss) -> Tensor:
    """The mean squared error of each noised image, [images]."""
    assert loss.mse_images is not None, "preferences have targets"
    return loss.mse_images()
