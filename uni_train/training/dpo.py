"""Flow-DPO on pairs of images (uni_train/flow/dpo.py), beside the supervised loss of replayed rows.

    loss = mean over noised pairs of dpo_loss + sft_weight * error of the chosen image

The reference are the weights that the fit starts from: adapters switched off, or a copy of the trained weights.
`ce_weight` and `mse_weight` act on replayed rows alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

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
from uni_train.training.strategies.choice import current_ranks, on_ranks, reduced
from uni_train.training.supervised import FitOptions

METRICS = ("dpo", "accuracy", "chosen_reward", "rejected_reward", "chosen_error", "rejected_error", "margin", "tokens")
"""Means over the noised pairs of an update, and their latent tokens; accuracy: the share whose chosen image has the
higher implicit reward; margin: by how much."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Two images of one prompt: examples that differ in their targets' pixels alone. seed: of the noise of both."""

    chosen: Example
    rejected: Example
    seed: int = 0

    def both(self) -> tuple[Example, Example]:
        return replace(self.chosen, seed=self.seed), replace(self.rejected, seed=self.seed)

    def example(self) -> Example:
        return self.both()[0]


class PreferenceBatch(NamedTuple):
    """So many pairs; both their sides, and replayed rows, as the model collates them (None: there are none)."""

    pairs: int
    chosen: Any
    rejected: Any
    replayed: Any


def fit_dpo(
    model: Trainable, sources: Mapping[str, Source], schedule: Curriculum, config: TrainingConfig, updates: Updates,
    directory: Path, options: FitOptions, *, beta: float, sft_weight: float = 0.0, replayed: Collection[str] = (),
    evaluate: Evaluate | None = None,
) -> FitResult:  # fmt: skip
    """As `fit.fit_supervised`, on sources of `Preference`, and of examples where they are `replayed`.

    Under strategies that shard weights adapters alone can be trained, and nothing can be replayed.
    """
    config, updates = on_ranks(config), updates.shared(current_ranks().world_size)

    def prepare(made: Run) -> DpoModule:
        module = DpoModule(model, config, updates, options)
        module.sources, module.schedule, module.collate = sources, schedule, module.collated
        module.token_counts, module.replayed = module.counted, frozenset(replayed)
        module.beta, module.sft_weight = beta, sft_weight
        module.reference = Reference(model, module.trained_names)
        model.eval()  # dropout of adapters would tell the model from its reference
        made.callbacks.append(CurriculumCallback(schedule, evaluate, made.log))
        return module

    return run(model, config, updates, directory, prepare, options, schedule=schedule)


class DpoModule(MixedModule):
    """After the last micro-batch of an update `metrics` also has METRICS."""

    beta: float
    sft_weight: float
    replayed: frozenset[str]
    reference: Reference
    _means: Tensor

    def collated(self, rows: Sequence[Any], seed: int) -> PreferenceBatch:
        """`Trainable.collate` of each side and of the replayed rows."""
        pairs = [row.both() for row in rows if isinstance(row, Preference)]
        parts = [[pair[side] for pair in pairs] for side in (0, 1)]
        parts.append([row for row in rows if not isinstance(row, Preference)])
        return PreferenceBatch(len(pairs), *(self.model.collate(part, seed) if part else None for part in parts))

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
            self._means = reduced(self._means)
            own, before = dict(zip(METRICS, self._means, strict=True)), self.metrics
            own["loss"] = before["loss"] + own["dpo"] + self.sft_weight * own["chosen_error"]
            self.metrics = {**before, **own, "tokens": before["tokens"] + own["tokens"]} if self.replayed else own
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
        chosen, rejected = (implicit_reward(*pair, self.beta) for pair in zip(errors, before, strict=True))
        loss, margin = dpo_loss(chosen, rejected), chosen - rejected
        pairs = sum(rows for name, rows in self.dataset.counts(batch.step).items() if name not in self.replayed)
        share = content.pairs / (pairs * len(loss))  # of a noised pair
        parts = [loss, (margin > 0).float(), chosen, rejected, *errors, margin]
        tokens = losses[0].mse_tokens + losses[1].mse_tokens
        means = torch.stack([*(part.detach().float().sum() * share for part in parts), tokens])
        return (loss + self.sft_weight * errors[0]).sum() * share, means


def _errors(loss: SupervisedLoss) -> Tensor:
    assert loss.mse_images is not None, "preferences have targets"
    return loss.mse_images()
