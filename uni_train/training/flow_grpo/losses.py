"""The loss of a micro-batch of random steps, and the weights beside the trained ones that it asks for.

    policy       log probabilities of stored steps under today's weights          flow.grpo
    forward      losses on images noised anew in place of it: DiffusionNFT, AWM   flow.nft, flow.grpo
    thoughts     the tokens of thoughts, where images have such                   thoughts.py

Nothing here knows the loop: trainer.py calls it in training, uni_train/plan with tensors that have shapes alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from uni_train.config.schema import GrpoConfig, ThoughtsConfig
from uni_train.flow.grpo import PolicyLoss, awm_loss, dppo_loss, grpo_loss, guard_loss
from uni_train.flow.nft import anchor, nft_loss, optimality
from uni_train.flow.schedule import Schedule
from uni_train.flow.transition import Transition
from uni_train.models.base import UnifiedModel
from uni_train.training.flow_grpo.rollout import rule_of
from uni_train.training.flow_grpo.thoughts import ThoughtBatch, log_probs, thought_loss

PARTS = ("policy_loss", "approx_kl", "ratio", "clip_ratio/high_mean", "clip_ratio/low_mean")
"""What `Losses.of_images` tells of random steps, beside "kl"."""


@dataclass(frozen=True, slots=True, eq=False)
class MiniBatch:
    """R random steps to train on.

    Attributes:
        x: [R, G, C] before the step. t: [R], its noise level. condition: R rows.
        steps: int64 [R], after: [R, G, C], old_log_prob: [R], old_mean: [R, G, C] or [R, 0] (densities only).
        clean: [R, G, C], the finished image (of the forward process, else [R, 0]).
        advantage: [R]. mask: bool [R, G, 1].
        share: of the update's rows, on all ranks, that these are; 0: they count nothing.
        schedule: what `steps` count.
        fresh: the weights are those that sampled.
        thoughts: to train on beside them; with a share of 0 alone.
    """

    x: Tensor
    t: Tensor
    condition: Any
    steps: Tensor
    after: Tensor
    old_log_prob: Tensor
    old_mean: Tensor
    clean: Tensor
    advantage: Tensor
    mask: Tensor
    share: float
    schedule: Schedule
    fresh: bool
    thoughts: ThoughtBatch | None = None


class Losses:
    """Losses of a model in reinforcement. To be made with the weights that the run starts from in `model`.

    Attributes:
        rule: of the random steps; None for the forward process.
        reference: the weights that the run started from, if a penalty keeps near them.
        sampler: the weights that draw, by name, where those are not the trained ones (forward process).
    """

    def __init__(self, model: UnifiedModel, config: GrpoConfig, trained: set[str]) -> None:
        self.model, self.config = model, config
        self.rule = None if config.forward else rule_of(config)
        self._thoughts = config.thoughts or ThoughtsConfig()
        wanted = config.objective.kl or self._thoughts.kl
        self.reference = Reference(model, trained) if wanted else None
        self.sampler = copy_of(model, trained) if config.forward else None

    def of_images(self, rows: MiniBatch) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """The loss, its parts, and the log ratio [R] of random steps to when they were sampled."""
        return self._forward(rows) if self.rule is None else self._policy(rows)

    def _policy(self, rows: MiniBatch) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Replay the steps, compare with when they were sampled: the loss, its parts, the log ratio [R]."""
        objective, reference = self.config.objective, None
        if self.reference is not None and objective.kl:
            with self.reference.active():
                reference = self._velocity(rows)
        velocity = self._velocity(rows)
        current = self._transition(rows, velocity)
        limits: dict[str, Any] = {"advantage_clip": objective.advantage_clip}
        if self.config.variant == "guard":
            result = guard_loss(
                current, rows.after, rows.old_log_prob, rows.old_mean, rows.advantage, **self._clip, **limits
            )
        elif self.config.variant == "dppo":
            limits["divergence"] = objective.divergence
            result = dppo_loss(current, rows.after, rows.old_log_prob, rows.old_mean, rows.advantage, **limits)
        else:
            result = grpo_loss(current.log_prob(rows.after), rows.old_log_prob, rows.advantage, **self._clip, **limits)
        parts = _parts(result)
        if reference is None:
            return result.loss, parts, result.log_ratio
        divergence = current.kl(self._transition(rows, reference).mean)
        if objective.penalty == "velocity":
            divergence = anchor(velocity, reference, rows.mask)
        parts["kl"] = divergence.mean()
        return result.loss + objective.kl * parts["kl"], parts, result.log_ratio

    def of_thoughts(self, rows: ThoughtBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """GRPO on the tokens of thoughts (thoughts.py), their mean over thoughts, and its parts."""
        reference = None
        if self.reference is not None and self._thoughts.kl:
            with self.reference.active():
                reference = log_probs(self.model, rows.requests, rows.ids)
        now = log_probs(self.model, rows.requests, rows.ids)
        return thought_loss(now, reference, rows, self._thoughts, self.config.objective.advantage_clip)

    def _forward(self, rows: MiniBatch) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """On images noised anew: DiffusionNFT (arXiv 2509.16117), towards velocities of good images and away from those
        of bad ones, or AWM (arXiv 2509.25050), their matching weighted by the advantage."""
        assert self.sampler is not None
        with torch.no_grad(), weights_of(self.model, self.sampler):
            old = self._velocity(rows)
        reference = None
        if self.reference is not None:
            with self.reference.active():
                reference = self._velocity(rows)
        velocity = self._velocity(rows)
        objective, t, log_ratio = self.config.objective, rows.t[:, None, None], None
        if self.config.variant == "awm":
            target = (rows.x - rows.clean) / t
            result = awm_loss(
                velocity, old, target, rows.advantage, rows.mask, advantage_clip=objective.advantage_clip, **self._clip
            )
            loss, parts, log_ratio = result.loss, _parts(result), result.log_ratio
        else:
            good = optimality(rows.advantage, objective.advantage_clip)
            pull: dict[str, Any] = {"beta": objective.nft_beta, "negative": objective.nft_negative}
            each = nft_loss(velocity, old, rows.x, rows.clean, t, good, mask=rows.mask, **pull)
            loss = (each * (rows.advantage != 0)).mean()
            parts = {"policy_loss": loss, "approx_kl": anchor(velocity, old, rows.mask).mean()}
        if reference is None:
            return loss, parts, log_ratio
        parts["kl"] = anchor(velocity, reference, rows.mask).mean()
        return loss + objective.kl * parts["kl"], parts, log_ratio

    @property
    def _clip(self) -> dict[str, Any]:
        return {"clip_low": self.config.objective.clip_low, "clip_high": self.config.objective.clip_high}

    def _velocity(self, rows: MiniBatch) -> Tensor:
        return self.model.velocity(rows.x, rows.t, rows.condition)  # type: ignore[operator]

    def _transition(self, rows: MiniBatch, velocity: Tensor) -> Transition:
        assert self.rule is not None
        return self.rule.transition(rows.x, velocity, rows.schedule, rows.steps, rows.mask)

    def scored(self, rows: MiniBatch) -> tuple[Tensor, Tensor]:
        """Log probabilities [R] and means [R, G, C] of steps, computed as for an update, without gradients."""
        found = self._transition(rows, self._velocity(rows))
        return found.log_prob(rows.after).detach(), found.mean.detach()

    def sampling(self, on: bool = True) -> contextlib.AbstractContextManager[None]:
        """Within this context the model has the weights that sample, if `on`."""
        return weights_of(self.model, self.sampler) if self.sampler is not None and on else contextlib.nullcontext()

    def follow(self) -> None:
        """sampler <- nft_decay sampler + (1 - nft_decay) trained, after an epoch; awm: sampler <- trained."""
        decay = self.config.objective.nft_decay if self.config.variant == "diffusion_nft" else 0.0
        for name, parameter in self.model.named_parameters():
            if self.sampler is not None and name in self.sampler:
                old = self.sampler[name].to(parameter)
                self.sampler[name] = torch.lerp(parameter.detach(), old, decay)


def _parts(found: PolicyLoss) -> dict[str, Tensor]:
    """What is logged of a policy's loss, by the names of PARTS."""
    return {
        "policy_loss": found.loss,
        "approx_kl": found.approx_kl,
        "ratio": found.ratio.mean(),
        "clip_ratio/high_mean": found.clipped_high,
        "clip_ratio/low_mean": found.clipped_low,
    }


# --- other weights of the same model, for a moment --------------------------------------------------------------------


@contextmanager
def weights_of(module: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Within this block the parameters named in `weights` have those values; nothing is copied, unless it is
    of another precision."""
    parameters = {name: p for name, p in module.named_parameters() if name in weights}
    torch.clear_autocast_cache()  # it knows parameters by their place in memory, whatever their values
    kept = {name: p.data for name, p in parameters.items()}
    for name, parameter in parameters.items():
        parameter.data = weights[name].to(parameter)  # as precise, too: copies are older than bf16-true
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        for name, parameter in parameters.items():
            parameter.data = kept[name]


def copy_of(module: nn.Module, names: set[str]) -> dict[str, Tensor]:
    """Copies of the named parameters."""
    return {name: p.detach().clone() for name, p in module.named_parameters() if name in names}


class Reference:
    """The weights that a run starts from: adapters switched off where adapters are trained, else a frozen copy."""

    def __init__(self, module: nn.Module, trained: set[str]) -> None:
        self.module = module
        self.adapters: list[Any] = []
        if all("lora_" in name for name in trained):
            from peft.tuners.lora import LoraLayer

            self.adapters = [layer for layer in module.modules() if isinstance(layer, LoraLayer)]
        self.copy = {} if self.adapters else copy_of(module, trained)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within this block the module is the reference, without gradients."""
        with torch.no_grad():
            if not self.adapters:
                with weights_of(self.module, self.copy):
                    yield
                return
            # Not peft's enable_adapters, which also changes what is trained.
            before = [layer._disable_adapters for layer in self.adapters]
            for layer in self.adapters:
                layer._disable_adapters = True
            try:
                yield
            finally:
                torch.clear_autocast_cache()  # of casts without gradients
                for layer, disabled in zip(self.adapters, before, strict=True):
                    layer._disable_adapters = disabled
