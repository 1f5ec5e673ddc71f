"""The loss of a micro-batch of random steps.

    step_loss        random steps, or images noised again: the variant's loss         variants.VARIANTS
    token_loss       the tokens of thoughts, where thoughts are trained               flow.grpo.token_loss

trainer.py calls it in training, `uni_train.plan` with tensors that have shapes only.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from uni_train.data_gen.phrasing import CONCLUSION
from uni_train.flow.grpo import token_loss
from uni_train.flow.nft import anchor
from uni_train.flow.transition import Transition
from uni_train.models.base import FlowPolicy, ThoughtPolicy, expect_skill
from uni_train.models.transfer import upload
from uni_train.training.flow_grpo.batches import NO_TOKEN, MicroBatch, ThoughtBatch
from uni_train.training.flow_grpo.config import GrpoConfig, ThoughtsConfig
from uni_train.training.flow_grpo.variants import StepLoss
from uni_train.training.second_weights import Reference, copy_of, weights_of


class Losses:
    """The losses of a model. Make it while `model` has the weights that the run starts from.

    Attributes:
        rule: of the random steps; None where the variant has none.
        reference: the starting weights, where a KL penalty needs them.
        sampler: by name, the weights that sample, where they are not the trained ones.
    """

    def __init__(self, model: FlowPolicy, config: GrpoConfig, trained: set[str]) -> None:
        self.model, self.config, self.thoughts = model, config, config.learned_thoughts or ThoughtsConfig()
        algorithm = config.algorithm
        self.rule = None if algorithm.forward else algorithm.step_rule(config.rollout.noise_level)
        self.reference = Reference(model, trained) if config.objective.kl or self.thoughts.kl else None
        self.sampler = copy_of(model, trained) if algorithm.forward else None

    def step_loss(self, batch: MicroBatch) -> StepLoss:
        """The variant's loss of a micro-batch, with the penalty towards the reference where `objective.kl` is above 0.

        It runs the model once for the loss, once for the reference, and once for the weights that sample where those
        are others.
        """
        objective = self.config.objective
        old: Any = None
        reference: Any = None
        if self.sampler is not None:
            with torch.no_grad(), self.sampling():
                old = self._velocity(batch)
        if self.reference is not None and objective.kl:
            with self.reference.active():
                reference = self._velocity(batch)
        velocity = self._velocity(batch)
        transition = None if self.rule is None else self._transition(batch, velocity)
        loss, metrics, log_ratio = self.config.algorithm.loss(objective, batch, velocity, old, transition)
        if reference is not None:
            if transition is not None and objective.penalty == "step":
                kl = transition.kl(self._transition(batch, reference).mean)
            else:
                kl = anchor(velocity, reference, batch.mask)
            metrics["kl"] = kl.mean()
            loss = loss + objective.kl * metrics["kl"]
        return loss, metrics, log_ratio

    def token_loss(self, batch: ThoughtBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """GRPO on the tokens of thoughts, or their cross-entropy, a mean over thoughts; and its metrics."""
        reference, thoughts = None, self.thoughts
        if self.reference is not None and thoughts.kl:
            with self.reference.active():
                reference = self.token_log_probs(batch)
        return token_loss(
            self.token_log_probs(batch), batch.old_log_prob, batch.advantage, batch.written, reference,
            clip_low=thoughts.clip_low, clip_high=thoughts.clip_high, kl=thoughts.kl,
            advantage_clip=self.config.objective.advantage_clip, cross_entropy=thoughts.loss == "cross_entropy",
            weights=None if thoughts.result_weight == 1 else self._token_weights(batch),
        )  # fmt: skip

    def _token_weights(self, batch: ThoughtBatch) -> Tensor:
        """How much each token of a thought counts, float32 [R, L]: `result_weight` behind the words "So draw", else 1.

        A binary search finds the first token at which the text so far contains these words.
        """
        text, weights = expect_skill(self.model, ThoughtPolicy).thought_text, torch.ones(batch.ids.shape)
        for row, ids in zip(weights, batch.ids.tolist(), strict=True):
            own = [token for token in ids if token != NO_TOKEN]
            end = bisect_left(range(len(own)), True, key=lambda n, own=own: CONCLUSION in text(own[: n + 1]))  # type: ignore[misc]
            row[end + 1 :] = self.thoughts.result_weight
        return upload(weights, batch.old_log_prob.device)

    def token_log_probs(self, batch: ThoughtBatch) -> Tensor:
        """float32 [R, L] with gradients, 0 behind the end of a thought."""
        rows = [[token for token in row if token != NO_TOKEN] for row in batch.ids.tolist()]
        log_probs = expect_skill(self.model, ThoughtPolicy).thought_log_probs(batch.requests, rows)
        return torch.zeros_like(batch.old_log_prob).masked_scatter(batch.written, log_probs)

    def _velocity(self, batch: MicroBatch) -> Tensor:
        return self.model.velocity(batch.x, batch.t, batch.condition)

    def _transition(self, batch: MicroBatch, velocity: Tensor) -> Transition:
        assert self.rule is not None
        return self.rule.transition(batch.x, velocity, batch.schedule, batch.steps, batch.mask)

    def score(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Log probabilities [R] and means [R, G, C] of steps, computed as in an update, without gradients."""
        transition = self._transition(batch, self._velocity(batch))
        return transition.log_prob(batch.x_next).detach(), transition.mean.detach()

    def sampling(self) -> AbstractContextManager[None]:
        """Within this context the model has the weights that sample."""
        return nullcontext() if self.sampler is None else weights_of(self.model, self.sampler)

    def follow(self) -> None:
        """After an epoch: sampler <- decay sampler + (1 - decay) trained, by the decay of the variant."""
        decay = self.config.algorithm.decay(self.config.objective)
        sampler = self.sampler or {}
        for name, parameter in self.model.named_parameters():
            if name in sampler:
                sampler[name] = torch.lerp(parameter.detach(), sampler[name].to(parameter), decay)
