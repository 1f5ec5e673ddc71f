"""The loss of a micro-batch of random steps, and the second set of weights that it may need.

    step_loss        log probabilities of stored steps under the current weights      flow.grpo
                     or, for DiffusionNFT and AWM, losses on images noised again      flow.nft, flow.grpo
    token_loss       the tokens of thoughts, where thoughts are trained               flow.grpo.token_loss

trainer.py calls it in training, `uni_train.plan` with tensors that have shapes only.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from uni_train.config.schema import GrpoConfig, ObjectiveConfig, ThoughtsConfig
from uni_train.errors import UserError
from uni_train.flow.grpo import PolicyLoss, awm_loss, dppo_loss, grpo_loss, guard_loss, token_loss
from uni_train.flow.nft import anchor, nft_loss, optimality
from uni_train.flow.transition import Transition
from uni_train.models.base import UnifiedModel
from uni_train.training.flow_grpo.micro_batches import MicroBatch, ThoughtBatch
from uni_train.training.flow_grpo.rollout import NO_TOKEN, rule_of

METRICS = ("policy_loss", "approx_kl", "ratio", "clip_ratio/high_mean", "clip_ratio/low_mean")
"""Metrics of `Losses.step_loss` for random steps, beside "kl"."""


class Losses:
    """The losses of a model. Make it while `model` has the weights that the run starts from.

    Attributes:
        rule: of the random steps; None for DiffusionNFT and AWM.
        reference: the starting weights, where a KL penalty needs them.
        sampler: by name, the weights that sample, where they are not the trained ones (DiffusionNFT, AWM).
    """

    def __init__(self, model: UnifiedModel, config: GrpoConfig, trained: set[str]) -> None:
        self.model, self.config = model, config
        self._thoughts = config.thoughts or ThoughtsConfig()
        self.rule = None if config.forward else rule_of(config)
        self.reference = Reference(model, trained) if config.objective.kl or self._thoughts.kl else None
        self.sampler = copy_of(model, trained) if config.forward else None

    def step_loss(self, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """The loss, its metrics, and the log ratio [R] of random steps to the weights that sampled."""
        objective, old, reference = self.config.objective, None, None
        if self.sampler is not None:
            with torch.no_grad(), self.sampling():
                old = self._velocity(batch)
        if self.reference is not None and objective.kl:
            with self.reference.active():
                reference = self._velocity(batch)
        velocity, transition = self._velocity(batch), None
        if old is None:
            transition = self._transition(batch, velocity)
            loss, metrics, log_ratio = self._policy_loss(batch, transition)
        else:
            loss, metrics, log_ratio = self._forward_loss(batch, velocity, old)
        if reference is None:
            return loss, metrics, log_ratio
        if transition is not None and objective.penalty == "step":
            kl = transition.kl(self._transition(batch, reference).mean)
        else:
            kl = anchor(velocity, reference, batch.mask)
        metrics["kl"] = kl.mean()
        return loss + objective.kl * metrics["kl"], metrics, log_ratio

    def _policy_loss(
        self, batch: MicroBatch, transition: Transition
    ) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """The policy loss of random steps (Flow-GRPO, GRPO-Guard, Flow-DPPO)."""
        objective, clip = self.config.objective, self._clip
        stored = (batch.x_next, batch.old_log_prob, batch.old_mean, batch.advantage)
        if self.config.variant == "guard":
            result = guard_loss(transition, *stored, **clip)
        elif self.config.variant == "dppo":
            divergence, most = objective.divergence, objective.advantage_clip
            result = dppo_loss(transition, *stored, divergence=divergence, advantage_clip=most)
        else:
            result = grpo_loss(transition.log_prob(batch.x_next), batch.old_log_prob, batch.advantage, **clip)
        return result.loss, _metrics(result), result.log_ratio

    def _forward_loss(
        self, batch: MicroBatch, velocity: Tensor, old: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """DiffusionNFT (arXiv 2509.16117) or AWM (arXiv 2509.25050) on images noised again."""
        objective, t = self.config.objective, batch.t[:, None, None]
        if self.config.variant == "awm":
            target = (batch.x - batch.clean) / t
            result = awm_loss(velocity, old, target, batch.advantage, batch.mask, **self._clip)
            return result.loss, _metrics(result), result.log_ratio
        optimal = optimality(batch.advantage, objective.advantage_clip)
        pull: dict[str, Any] = {"beta": objective.nft_beta, "negative": objective.nft_negative}
        rows = nft_loss(velocity, old, batch.x, batch.clean, t, optimal, mask=batch.mask, **pull)
        loss = (rows * (batch.advantage != 0)).mean()
        return loss, {"policy_loss": loss, "approx_kl": anchor(velocity, old, batch.mask).mean()}, None

    def token_loss(self, batch: ThoughtBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """GRPO on the tokens of thoughts, a mean over thoughts; and its metrics."""
        reference, thoughts = None, self._thoughts
        if self.reference is not None and thoughts.kl:
            with self.reference.active():
                reference = self.token_log_probs(batch)
        return token_loss(
            self.token_log_probs(batch),
            batch.old_log_prob,
            batch.advantage,
            batch.ids != NO_TOKEN,
            reference,
            clip_low=thoughts.clip_low,
            clip_high=thoughts.clip_high,
            kl=thoughts.kl,
            advantage_clip=self.config.objective.advantage_clip,
        )

    def token_log_probs(self, batch: ThoughtBatch) -> Tensor:
        """float32 [R, L] with gradients, 0 behind the end of a thought."""
        written = batch.ids != NO_TOKEN
        rows = [ids[kept].tolist() for ids, kept in zip(batch.ids, written, strict=True)]
        log_probs: Any = self.model.thought_log_probs(batch.requests, rows)
        return batch.ids.new_zeros(batch.ids.shape, dtype=torch.float32).masked_scatter(written, log_probs)

    @property
    def _clip(self) -> dict[str, Any]:
        objective = self.config.objective
        return {name: getattr(objective, name) for name in ("clip_low", "clip_high", "advantage_clip")}

    def _velocity(self, batch: MicroBatch) -> Tensor:
        return self.model.velocity(batch.x, batch.t, batch.condition)  # type: ignore[operator]

    def _transition(self, batch: MicroBatch, velocity: Tensor) -> Transition:
        assert self.rule is not None
        return self.rule.transition(batch.x, velocity, batch.schedule, batch.steps, batch.mask)

    def score(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Log probabilities [R] and means [R, G, C] of steps, computed as in an update, without gradients."""
        transition = self._transition(batch, self._velocity(batch))
        return transition.log_prob(batch.x_next).detach(), transition.mean.detach()

    def sampling(self, on: bool = True) -> contextlib.AbstractContextManager[None]:
        """Within this context the model has the weights that sample, if `on`."""
        return weights_of(self.model, self.sampler) if self.sampler is not None and on else contextlib.nullcontext()

    def follow(self) -> None:
        """After an epoch: sampler <- nft_decay sampler + (1 - nft_decay) trained; awm: sampler <- trained."""
        decay = self.config.objective.nft_decay if self.config.variant == "diffusion_nft" else 0.0
        for name, parameter in self.model.named_parameters():
            if self.sampler is not None and name in self.sampler:
                old = self.sampler[name].to(parameter)
                self.sampler[name] = torch.lerp(parameter.detach(), old, decay)


def _metrics(result: PolicyLoss) -> dict[str, Tensor]:
    """By the names of METRICS."""
    clipped = (result.clipped_high, result.clipped_low)
    return dict(zip(METRICS, (result.loss, result.approx_kl, result.ratio.mean(), *clipped), strict=True))


def check_on_policy(worst: float, objective: ObjectiveConfig, update: int) -> None:
    """Raises UserError where the weights that sampled a step now give it another density.

    Args:
        worst: the largest |log ratio| of all ranks' steps.
    """
    clip_range = min(math.log1p(objective.clip_high), -math.log1p(-min(objective.clip_low, 0.999)))
    most = objective.on_policy_check * clip_range
    if worst <= most:
        return
    raise UserError(
        f"on-policy check: before update {update + 1} the weights are those that sampled, but the log ratio of a step "
        f"is {worst:.2g} (at most {most:.2g}: {objective.on_policy_check:g} of the clip range)",
        "Training and sampling compute different velocities. objective.on_policy=recompute scores the samples in the "
        "micro-batches of training; else check dropout and rollout.latents=float32, or widen the clip range.",
    )


# --- a second set of weights ------------------------------------------------------------------------------------------


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
