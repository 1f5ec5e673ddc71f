"""The variants of Flow-GRPO, in one table: which steps of an image are random, how, and what is learned from them.

To add one, write its loss here or in `uni_train.flow`, its name in `GrpoVariant`, and its row in `VARIANTS`. A loss
takes the keys of the objective, a micro-batch, and the velocity at its latents. It also takes the velocity of the
weights that sampled (variants with `forward`), and the random step with today's weights (the others). Torch is imported
inside functions only, because a recipe is checked without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from uni_train.config.schema import Draws, Positive, Share, Weight

if TYPE_CHECKING:
    from torch import Tensor

    from uni_train.flow.steps import StepName, StepRule
    from uni_train.training.flow_grpo.batches import MicroBatch

GrpoVariant = Literal["flow_grpo", "fast", "cps", "dance", "guard", "mix", "dppo", "diffusion_nft", "awm"]
StepLoss = tuple["Tensor", dict[str, "Tensor"], "Tensor | None"]
"""The loss, its metrics, and the log ratio [R] to the weights that sampled; DiffusionNFT has none."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is learned from them."""

    clip_low: Positive = 1e-3
    clip_high: Positive = 1e-3
    advantage_clip: Positive = 5.0
    kl: Weight = 0.0  # weight of the penalty towards the starting weights; diffusion_nft: the anchor
    penalty: Literal["step", "velocity"] = "step"  # what kl weighs: of a step, or squared distance of velocities
    image_weight: Weight = 1.0  # of the loss of random steps, beside thoughts; 0: thoughts alone are learned
    baseline: Literal["group", "batch"] = "group"  # whose mean reward is subtracted; batch: equal groups teach, too
    # whose deviation divides advantages; each: by reward
    scale_rewards: Literal["group", "batch", "each", "none"] = "group"
    divergence: Positive = 1e-6  # dppo: of a step from the one that drew; beyond it nothing is pushed further
    noise_draws: Draws = 4  # diffusion_nft, awm: noise levels drawn for each image
    nft_beta: Positive = 1.0
    nft_negative: Weight = 1.0  # diffusion_nft: weight of the loss away from bad images; 0: positive-only
    nft_decay: Share = 0.9  # diffusion_nft: how much of the drawing weights is kept after an epoch
    on_policy: Literal["check", "trust", "recompute"] = "check"  # recompute: training scores what was drawn, too
    on_policy_check: Positive = 0.5  # before weights change, |log ratio| may be this share of the clip range


# --- losses -----------------------------------------------------------------------------------------------------------


def clipped(objective: ObjectiveConfig, batch: MicroBatch, velocity: Tensor, old: Any, step: Any) -> StepLoss:
    """Flow-GRPO: the clipped ratio of a step's densities, times the advantage."""
    from uni_train.flow.grpo import grpo_loss

    return grpo_loss(step.log_prob(batch.x_next), batch.old_log_prob, batch.advantage, **_clip(objective)).summary()


def guard(objective: ObjectiveConfig, batch: MicroBatch, velocity: Tensor, old: Any, step: Any) -> StepLoss:
    """GRPO-Guard: the same with a ratio that is centred, and equally wide at every noise level."""
    from uni_train.flow.grpo import guard_loss

    stored = (batch.x_next, batch.old_log_prob, batch.old_mean, batch.advantage)
    return guard_loss(step, *stored, **_clip(objective)).summary()


def dppo(objective: ObjectiveConfig, batch: MicroBatch, velocity: Tensor, old: Any, step: Any) -> StepLoss:
    """Flow-DPPO: the plain ratio; steps that are too far from the weights that sampled are not pushed further."""
    from uni_train.flow.grpo import dppo_loss

    stored = (batch.x_next, batch.old_log_prob, batch.old_mean, batch.advantage)
    bounds: Any = {"divergence": objective.divergence, "advantage_clip": objective.advantage_clip}
    return dppo_loss(step, *stored, **bounds).summary()


def diffusion_nft(objective: ObjectiveConfig, batch: MicroBatch, velocity: Tensor, old: Any, step: Any) -> StepLoss:
    """DiffusionNFT: on images noised again, towards good ones and away from bad ones, without densities."""
    from uni_train.flow.nft import anchor, nft_loss, optimality

    optimal = optimality(batch.advantage, objective.advantage_clip)
    pull: Any = {"beta": objective.nft_beta, "negative": objective.nft_negative, "mask": batch.mask}
    rows = nft_loss(velocity, old, batch.x, batch.clean, batch.t[:, None, None], optimal, **pull)
    loss = (rows * (batch.advantage != 0)).mean()
    return loss, {"policy_loss": loss, "approx_kl": anchor(velocity, old, batch.mask).mean()}, None


def awm(objective: ObjectiveConfig, batch: MicroBatch, velocity: Tensor, old: Any, step: Any) -> StepLoss:
    """Advantage Weighted Matching: on images noised again, the loss of pretraining as a log probability."""
    from uni_train.flow.grpo import awm_loss

    target = (batch.x - batch.clean) / batch.t[:, None, None]
    return awm_loss(velocity, old, target, batch.advantage, batch.mask, **_clip(objective)).summary()


def _clip(objective: ObjectiveConfig) -> Any:
    return {name: getattr(objective, name) for name in ("clip_low", "clip_high", "advantage_clip")}


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """What a variant does; each default is Flow-GRPO's (Liu et al. 2025, arXiv 2505.05470).

    Attributes:
        loss: of a micro-batch.
        step: the random step, by its name in flow.steps. noise_level: the published one; most_noise: the largest.
        noisy_end: whether the last step can be random.
        window: where the random steps are: the same in every epoch, drawn for each, or sliding from the noisy end.
        window_size: how many there are by default; None: all that rollout.first_step and last_step allow.
        keeps_means: the loss asks where steps led on average when they were drawn.
        forward: it learns from images noised again (the forward process) and draws without random steps; a second set
            of weights samples.
        decay: how much of the weights that sample is kept after an epoch.
    """

    loss: Callable[[ObjectiveConfig, MicroBatch, Tensor, Any, Any], StepLoss] = clipped
    step: StepName = "flow_grpo"
    noise_level: float = 0.7
    most_noise: float = math.inf
    noisy_end: bool = True
    window: Literal["fixed", "drawn", "sliding"] = "fixed"
    window_size: int | None = None
    keeps_means: bool = False
    forward: bool = False
    decay: Callable[[ObjectiveConfig], float] = lambda objective: 0.0

    def step_rule(self, noise_level: float | None) -> StepRule:
        """The random step; None: at the published noise level."""
        from uni_train.flow.steps import step_rule

        return step_rule(self.step, self.noise_level if noise_level is None else noise_level)


VARIANTS: dict[GrpoVariant, Variant] = {
    "flow_grpo": Variant(),
    "fast": Variant(window="drawn", window_size=2),
    "cps": Variant(step="cps", most_noise=1.0, noisy_end=False),
    "dance": Variant(step="dance", noise_level=0.3),
    "guard": Variant(guard, keeps_means=True),
    "mix": Variant(window="sliding", window_size=2),
    "dppo": Variant(dppo, keeps_means=True),
    "diffusion_nft": Variant(diffusion_nft, forward=True, decay=lambda objective: objective.nft_decay),
    "awm": Variant(awm, forward=True),
}
