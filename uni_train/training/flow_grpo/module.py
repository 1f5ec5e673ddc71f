"""Lightning's view of a model under reinforcement: a plain loss a micro-batch, automatic optimisation does the rest.

    loss = mean over (picture, step) of the clipped objective + kl weight * divergence from the reference

`mean` runs over all rows of an update, whatever its micro-batches.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch import Tensor, nn

from uni_train.errors import UserError
from uni_train.flow.grpo import PolicyLoss, grpo_loss, guard_loss
from uni_train.flow.nft import anchor, nft_loss, optimality
from uni_train.flow.transition import Transition
from uni_train.training.flow_grpo.batches import GrpoRows
from uni_train.training.flow_grpo.policies import Reference, copy_of, weights_of
from uni_train.training.flow_grpo.rollouts import rule_of
from uni_train.training.flow_grpo.settings import FlowGrpoSettings
from uni_train.training.settings import SupervisedSettings
from uni_train.training.steps import StepBatch
from uni_train.training.supervised import SupervisedModule


class FlowGrpoModule(SupervisedModule):
    """After the last micro-batch of an update `metrics` holds its loss and its parts, statistics of the ratio (mean,
    deviation, largest |log ratio|), clip fractions, grad_norm, tokens, and the epoch's rewards from `epoch_metrics`.

    Raises (in training_step):
        UserError: the parity gate: steps scored again with the weights that drew them differ too much.
    """

    def __init__(self, model: nn.Module, settings: SupervisedSettings, grpo: FlowGrpoSettings) -> None:
        super().__init__(model, settings)
        self.grpo = grpo
        self.rule = rule_of(grpo) if grpo.variant != "diffusion_nft" else None
        # Before Lightning restores a checkpoint: the weights that the run starts from.
        self.reference = Reference(model, self.trained_names) if grpo.kl else None
        self.sampler = copy_of(model, self.trained_names) if grpo.variant == "diffusion_nft" else None
        self.epoch_metrics: dict[str, float] = {}
        self._so_far: dict[str, Tensor] = {}
        self._ratios: list[Tensor] = []

    def sampling(self) -> Any:
        """Within this context the model has the weights that draw: today's, or those that diffusion_nft keeps."""
        return contextlib.nullcontext() if self.sampler is None else weights_of(self.model, self.sampler)

    def finish_epoch(self) -> None:
        """diffusion_nft: the weights that draw follow those that are trained."""
        if self.sampler is not None:
            for name, parameter in self.model.named_parameters():
                if name in self.sampler:
                    self.sampler[name] = torch.lerp(
                        parameter.detach(), self.sampler[name].to(parameter), self.grpo.nft_decay
                    )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.sampler is not None:
            checkpoint["sampler"] = self.sampler

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if self.sampler is not None:
            self.sampler = dict(checkpoint["sampler"])

    def training_step(self, batch: StepBatch, batch_idx: int) -> Tensor:
        if batch.step != self.global_step:
            raise RuntimeError(f"the loader gave the batch of update {batch.step} to update {self.global_step}")
        rows: GrpoRows = batch.content
        loss, parts, log_ratio = self._forward_process(rows) if self.rule is None else self._policy(rows)
        if rows.fresh and log_ratio is not None:
            self._check_parity(log_ratio, batch.step)
        if batch.micro == 0:
            self._so_far, self._ratios = {}, []
        for name, value in {"loss": loss, **parts}.items():
            self._so_far[name] = self._so_far.get(name, 0) + value.detach().float() * rows.share
        self._so_far["tokens"] = self._so_far.get("tokens", 0) + rows.mask.sum().float() * (rows.share > 0)
        if log_ratio is not None:
            self._ratios.append(log_ratio if rows.share else log_ratio[:0])
        if batch.last:
            self._finish_update(loss)
        # DDP averages gradients over ranks and Lightning over micro-batches, but these are parts of one sum.
        return loss * (rows.share * batch.grad_accumulation_steps * self.trainer.world_size)

    def _finish_update(self, loss: Tensor) -> None:
        """Metrics of the update over all ranks."""
        reduce = self.trainer.strategy.reduce
        names = sorted(self._so_far)
        sums = reduce(torch.stack([self._so_far[name] for name in names]), reduce_op="sum")
        self.metrics.update(zip(names, sums, strict=True))
        if self._ratios:
            all_ratios = torch.cat(self._ratios)
            off = all_ratios.double().expm1()  # ratio - 1, whose square is not lost beside 1
            counted = off.new_tensor(float(len(off)))
            n, total, squares = reduce(torch.stack([counted, off.sum(), off.square().sum()]), reduce_op="sum")
            self.metrics["ratio_std"] = (squares / n - (total / n).square()).clamp_min(0).sqrt().float()
            worst = torch.cat([all_ratios.abs(), all_ratios.new_zeros(1)]).max()
            self.metrics["log_ratio_max"] = reduce(worst, reduce_op="max")
        self.metrics.update({k: loss.new_tensor(v) for k, v in self.epoch_metrics.items()})

    def _policy(self, rows: GrpoRows) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        assert self.rule is not None
        reference = self._reference_transition(rows)
        now = self._transition(rows)
        low, high, most = self.grpo.clip_low, self.grpo.clip_high, self.grpo.advantage_clip
        found: PolicyLoss
        if self.grpo.variant == "guard":
            found = guard_loss(
                now,
                rows.after,
                rows.old_log_prob,
                rows.old_mean,
                rows.advantage,
                clip_low=low,
                clip_high=high,
                advantage_clip=most,
            )
            log_ratio = (now.log_prob(rows.after) - rows.old_log_prob).detach()
        else:
            log_prob = now.log_prob(rows.after)
            log_ratio = (log_prob - rows.old_log_prob).detach()
            found = grpo_loss(
                log_prob, rows.old_log_prob, rows.advantage, clip_low=low, clip_high=high, advantage_clip=most
            )
        loss = found.loss
        parts = {
            "policy_loss": found.loss,
            "drift": found.drift,
            "ratio": found.ratio.mean(),
            "clip_high": found.clipped_high,
            "clip_low": found.clipped_low,
        }
        if reference is not None:
            parts["kl"] = now.kl(reference.mean).mean()
            loss = loss + self.grpo.kl * parts["kl"]
        return loss, parts, log_ratio

    def _transition(self, rows: GrpoRows) -> Transition:
        assert self.rule is not None
        velocity = self.model.velocity(rows.x, rows.t, rows.condition)  # type: ignore[operator]
        return self.rule.transition(rows.x, velocity, rows.schedule, rows.steps, rows.mask)

    def _reference_transition(self, rows: GrpoRows) -> Transition | None:
        if self.reference is None:
            return None
        with self.reference.active():
            return self._transition(rows)

    def _forward_process(self, rows: GrpoRows) -> tuple[Tensor, dict[str, Tensor], None]:
        assert self.sampler is not None
        with torch.no_grad(), weights_of(self.model, self.sampler):
            old = self._velocity(rows)
        reference = None
        if self.reference is not None:
            with self.reference.active():
                reference = self._velocity(rows)
        velocity = self._velocity(rows)
        good = optimality(rows.advantage, self.grpo.advantage_clip)
        t = rows.t[:, None, None]
        terms = nft_loss(velocity, old, rows.x, rows.clean, t, good, beta=self.grpo.nft_beta, mask=rows.mask)
        parts = {"policy_loss": terms.mean(), "drift": anchor(velocity, old, rows.mask).mean()}
        loss = parts["policy_loss"]
        if reference is not None:
            parts["kl"] = anchor(velocity, reference, rows.mask).mean()
            loss = loss + self.grpo.kl * parts["kl"]
        return loss, parts, None

    def _velocity(self, rows: GrpoRows) -> Tensor:
        return self.model.velocity(rows.x, rows.t, rows.condition)  # type: ignore[operator]

    def _check_parity(self, log_ratio: Tensor, step: int) -> None:
        """Raises UserError where weights that have not moved give another density than when they drew."""
        bound = self.grpo.parity * min(math.log1p(self.grpo.clip_high), -math.log1p(-min(self.grpo.clip_low, 0.999)))
        worst = float(self.trainer.strategy.reduce(log_ratio.abs().max(), reduce_op="max"))
        if worst <= bound:
            return
        raise UserError(
            f"parity: before update {step + 1} the weights are those that drew, but the log ratio of a step is "
            f"{worst:.2g} (at most {bound:.2g}: {self.grpo.parity:g} of the clip range)",
            "Training and drawing compute different velocities: check dropout, precision and latents=float32, or widen "
            "the clip range.",
        )

    def transfer_batch_to_device(self, batch: StepBatch, device: torch.device, dataloader_idx: int) -> StepBatch:
        return batch  # rollouts are where the model is
