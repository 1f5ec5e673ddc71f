"""Policy objectives for steps, noised images and tokens.

The clipped objective (GRPO, as in Flow-GRPO), GRPO-Guard and Flow-DPPO use the density of steps. AWM uses images noised
again, UniGRPO the tokens of thoughts.

The first three take B steps, one a row: log probabilities now and when they were sampled, and the advantage of the
sample that a step belongs to. The penalty towards the reference model is `Transition.kl`;
`uni_train.training.flow_grpo.losses` adds ``beta * kl.mean()``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from uni_train.flow.transition import Transition, row_mean

ADVANTAGE_CLIP = 5.0
STEP_METRICS = ("policy_loss", "approx_kl", "ratio", "clip_ratio/high_mean", "clip_ratio/low_mean")
"""Metrics of `PolicyLoss.summary`."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyLoss:
    """What to minimise, and what to watch.

    Attributes:
        loss: scalar, the mean over rows.
        ratio: [B], detached: how much likelier the step has become.
        clipped_high, clipped_low: scalars, shares of rows whose ratio is beyond the clip range.
        log_ratio: [B], detached: log probability now less that when the step was sampled.
        approx_kl: scalar, ``mean (new - old)^2 / 2`` of the log probabilities: an estimate of the divergence from the
            policy that sampled.
    """

    loss: Tensor
    ratio: Tensor
    clipped_high: Tensor
    clipped_low: Tensor
    log_ratio: Tensor
    approx_kl: Tensor

    def summary(self) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """The loss, its metrics by the names of STEP_METRICS, and the log ratio."""
        values = (self.loss, self.approx_kl, self.ratio.mean(), self.clipped_high, self.clipped_low)
        return self.loss, dict(zip(STEP_METRICS, values, strict=True)), self.log_ratio


def grpo_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    advantage_clip: float = ADVANTAGE_CLIP,
) -> PolicyLoss:
    """``mean max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))``, ``r = exp(new - old)``, A within +-`advantage_clip`.

    PPO's clipped objective (Schulman et al. 2017, eq. 7) with GRPO's advantage, on steps of a flow (Flow-GRPO,
    arXiv 2505.05470). All arguments [B]; the gradient goes to `log_prob`.
    """
    log_ratio = log_prob - old_log_prob
    terms, ratio = _clipped(log_ratio, advantage, clip_low, clip_high, advantage_clip)
    return _policy_loss(terms, ratio, log_ratio, clip_low, clip_high)


def guard_loss(
    transition: Transition,
    value: Tensor,
    old_log_prob: Tensor,
    old_mean: Tensor,
    advantage: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    advantage_clip: float = ADVANTAGE_CLIP,
    scope: Literal["row", "batch"] = "row",
) -> PolicyLoss:
    """GRPO-Guard (Wang et al. 2025, arXiv 2510.22319): a ratio that is centred and equally wide at every noise level.

    Notation: d is the new minus the old mean, s the step's standard deviation, x' = old mean + s e. Then

        log r = s (new - old + mean d^2 / (2 s^2)) = mean e d

    which is 0 on average over e: the plain ratio is below 1 on average, so it hits the upper clip too late. Steps are
    weighted by ``1 / (t - t')``, which makes their gradients comparable.

    Args:
        transition: the step with today's weights.
        value: [B, ...], the x' that was sampled.
        old_log_prob, old_mean: [B] and [B, ...], of the transition that sampled it.
        scope: "row": mean d^2 and s are each row's own, so rows may be at different levels. "batch": they are averaged
            over the batch, as the released code does; that is right only where all rows are at one level.

    Raises:
        ValueError: a squared error in place of a density (CPS), whose ratio has another scale.
    """
    if transition.density == "squared_error":
        raise ValueError("GRPO-Guard normalises the ratio of Gaussian densities; CPS has none")
    log_ratio = transition.log_prob(value) - old_log_prob
    std, moved = transition.std.flatten(), row_mean((transition.mean - old_mean).square(), transition.mask)
    root_dt = std / transition.diffusion.flatten()
    if scope == "batch":
        root_dt, moved = root_dt.mean(), moved.mean()
        std = transition.diffusion.mean() * root_dt
    centred = (log_ratio + moved / (2 * std.square())) * std
    terms, ratio = _clipped(centred, advantage, clip_low, clip_high, advantage_clip)
    return _policy_loss(terms / root_dt.square(), ratio, log_ratio, clip_low, clip_high)


def dppo_loss(
    transition: Transition,
    value: Tensor,
    old_log_prob: Tensor,
    old_mean: Tensor,
    advantage: Tensor,
    *,
    divergence: float,
    advantage_clip: float = ADVANTAGE_CLIP,
) -> PolicyLoss:
    """Flow-DPPO (arXiv 2606.11025): ``mean -A r``, without rows that are already too far from the policy that sampled
    and would be pushed further.

    A row is left out where D >= `divergence`, and A > 0 with r > 1, or A < 0 with r < 1. D is the Kullback-Leibler
    divergence of two Gaussians of equal width, a mean over a row's elements:

        D = mean (mean - old mean)^2 / (2 std^2)

    One sample's ratio is a noisy estimate of D. Clipping by that ratio bounds some steps too much and others too
    little. This follows the published code of UniRL and Flow-Factory, which agree. `clipped_high` and `clipped_low` are
    the shares left out with r > 1 and r < 1.

    Args:
        transition: the step with today's weights. value: [B, ...], what was sampled.
        old_log_prob, old_mean: [B] and [B, ...], of the transition that sampled it.
    """
    log_ratio = transition.log_prob(value) - old_log_prob
    ratio, advantage = log_ratio.exp(), advantage.clamp(-advantage_clip, advantage_clip)
    with torch.no_grad():
        moved = (transition.mean - old_mean).square() / (2 * transition.std.square())
        far = row_mean(moved, transition.mask) >= divergence
        high, low = far & (ratio > 1) & (advantage > 0), far & (ratio < 1) & (advantage < 0)
    terms = torch.where(high | low, torch.zeros_like(ratio), -advantage * ratio)
    detached = log_ratio.detach()
    return PolicyLoss(
        terms.mean(), ratio.detach(), high.float().mean(), low.float().mean(), detached, detached.square().mean() / 2
    )


def awm_loss(
    velocity: Tensor,
    old_velocity: Tensor,
    target: Tensor,
    advantage: Tensor,
    mask: Tensor | None = None,
    *,
    clip_low: float,
    clip_high: float,
    advantage_clip: float = ADVANTAGE_CLIP,
) -> PolicyLoss:
    """Advantage Weighted Matching (Xue et al. 2025, arXiv 2509.25050): `grpo_loss` of ``log p = -mean (v - target)^2``.

    The log probability of an image is the loss of pretraining at a noised copy of it, negated. Where both weights are
    the same, the gradient is that of ``mean A (v - target)^2``.

    Args:
        velocity, old_velocity: [B, ...] at one noised copy, of today's weights and of those that sampled the image.
        target: [B, ...], noise - clean. advantage: [B]. mask: bool, which elements belong to an image.
    """
    log_prob, old = (-row_mean((v - target).square(), mask) for v in (velocity, old_velocity.detach()))
    return grpo_loss(log_prob, old, advantage, clip_low=clip_low, clip_high=clip_high, advantage_clip=advantage_clip)


TOKEN_METRICS = ("thoughts/policy_loss", "thoughts/clip_ratio", "thoughts/ratio_off", "thoughts/length")
"""Metrics of `token_loss`, beside "thoughts/kl"."""


def token_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    written: Tensor,
    reference: Tensor | None = None,
    *,
    clip_low: float,
    clip_high: float,
    kl: float = 0.0,
    advantage_clip: float = ADVANTAGE_CLIP,
    cross_entropy: bool = False,
    weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """GRPO on the tokens of thoughts (UniGRPO, Liu et al. 2026, arXiv 2603.23500), and its metrics.

        mean over thoughts of mean over tokens of  max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) + kl * k3

    with ``r = p(token) / p_old(token)``: GRPO's eq. 3 (Shao et al. 2024, arXiv 2402.03300). k3 is its estimate of the
    divergence from the reference, ``exp(q) - q - 1`` with q = log p_reference - log p.

    Args:
        log_prob, old_log_prob, reference: [R, L], of R thoughts; the gradient goes to the first. advantage: [R].
        written: bool [R, L], False behind the end of a thought.
        cross_entropy: learn all R thoughts alike: ``-log p`` a token, without ratio and advantage.
        weights: [R, L], at least 0, of tokens in the mean of a thought's clipped terms or cross-entropy; None: equal.
    """
    count = written.sum(1).clamp_min(1)

    def mean(values: Tensor) -> Tensor:
        return ((values * written).sum(1) / count).mean()

    log_ratio = (log_prob - (log_prob.detach() if cross_entropy else old_log_prob)) * written
    terms, ratio = _clipped(log_ratio, advantage[:, None], clip_low, clip_high, advantage_clip)
    terms, off = -log_prob if cross_entropy else terms, ratio.detach() - 1
    loss = mean(terms if weights is None else terms * weights * (count / (weights * written).sum(1))[:, None])
    beyond = ((off > clip_high) | (-off > clip_low)).float()
    metrics = dict(zip(TOKEN_METRICS, (loss, mean(beyond), mean(off.abs()), count.float().mean()), strict=True))
    if reference is None:
        return loss, metrics
    q = reference - log_prob
    metrics["thoughts/kl"] = mean(q.exp() - q - 1)
    return loss + kl * metrics["thoughts/kl"], metrics


def _clipped(
    log_ratio: Tensor, advantage: Tensor, clip_low: float, clip_high: float, advantage_clip: float
) -> tuple[Tensor, Tensor]:
    """Terms of the objective and the ratio, both like `log_ratio`."""
    advantage = advantage.clamp(-advantage_clip, advantage_clip)
    ratio = log_ratio.exp()
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip_low, 1 + clip_high)), ratio


def _policy_loss(terms: Tensor, ratio: Tensor, log_ratio: Tensor, clip_low: float, clip_high: float) -> PolicyLoss:
    ratio = ratio.detach()
    return PolicyLoss(
        terms.mean(),
        ratio,
        (ratio - 1 > clip_high).float().mean(),
        (1 - ratio > clip_low).float().mean(),
        log_ratio.detach(),
        log_ratio.detach().square().mean() / 2,
    )
