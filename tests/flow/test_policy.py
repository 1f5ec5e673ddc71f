"""Advantages and objectives: identities that the golden tests do not imply."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.flow.advantages import (
    batch_advantages,
    gdpo_advantages,
    group_advantages,
    group_index,
    informative,
)
from uni_train.flow.grpo import awm_loss, dppo_loss, guard_loss
from uni_train.flow.nft import anchor, nft_loss, optimality
from uni_train.flow.objective import interpolate, velocity_target
from uni_train.flow.schedule import bagel_schedule
from uni_train.flow.steps import FlowCPS, FlowSDE
from uni_train.flow.transition import Transition

seeds = st.integers(0, 1000)
SCHEDULE = bagel_schedule(9, 3.0)
CLIP = {"clip_low": 0.1, "clip_high": 0.2}


def rewards(seed, groups=5, size=4):
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(groups * size, generator=generator)
    return torch.rand(groups * size, generator=generator), torch.arange(groups).repeat_interleave(size)[order]


@settings(max_examples=25)
@given(seeds, st.sampled_from([0.0, 0.1, 0.7, -1.0, 1e6]), st.sampled_from([0.0, 1e-17, 1e-7]))
def test_a_group_with_equal_rewards_teaches_nothing(seed, reward, rounding):
    values, groups = (x.double() if x.is_floating_point() else x for x in rewards(seed))
    flat = groups == 2
    noise = rounding * max(1, abs(reward)) * torch.rand(len(values), dtype=torch.double)
    values[flat] = reward + noise[flat]
    assert torch.equal(informative(values, groups), ~flat)
    assert informative(torch.tensor([0.5, 0.5 + 1e-5], dtype=torch.double), torch.zeros(2, dtype=torch.long)).all()
    for options in ({}, {"scale_rewards": "batch"}, {"scale_rewards": "none"}, {"eps": 0.0, "floor": 1e-6}):
        assert not group_advantages(values, groups, **options)[flat].any()
    assert not batch_advantages(reward + noise).any()
    two = torch.stack([values, reward + noise], 1)
    assert not gdpo_advantages(two[:, 1:], torch.ones(1), groups).any(), "each reward by itself"
    torch.testing.assert_close(
        gdpo_advantages(two, torch.ones(2), groups), gdpo_advantages(two[:, :1], torch.ones(1), groups)
    )


def test_without_division_advantages_are_differences() -> None:
    values, groups = rewards(0)
    means = torch.stack([values[groups == group].mean() for group in groups])
    torch.testing.assert_close(group_advantages(values, groups, "none"), values - means)
    torch.testing.assert_close(batch_advantages(values, scale_rewards="none"), values - values.mean())
    with pytest.raises(ValueError, match="which may be 0"):
        batch_advantages(values, scale_rewards="group")


def test_long_prompts_with_one_beginning_are_two_groups():
    assert group_index(["a" * 300 + "b", "a" * 300 + "c", "a" * 300 + "b"]).tolist() == [0, 1, 0]


def guarded(seed, change, scope):
    """GRPO-Guard's loss of one row."""
    generator = torch.Generator().manual_seed(seed)
    x, v, moved, noise = torch.randn(4, 1, 20, 3, generator=generator, dtype=torch.double)
    advantage = torch.randn(1, generator=generator, dtype=torch.double)
    old, new = (FlowSDE(0.7).transition(x, velocity, SCHEDULE, 3) for velocity in (v, v + change * moved))
    value = old.sample(noise)
    return guard_loss(new, value, old.log_prob(value), old.mean, advantage, scope=scope, **CLIP)


@settings(max_examples=25)
@given(seeds, st.floats(0, 0.3))
def test_guards_two_scopes_agree_on_one_row(seed, change):
    row, batch = (guarded(seed, change, scope) for scope in ("row", "batch"))
    torch.testing.assert_close(row.loss, batch.loss)
    torch.testing.assert_close(row.ratio, batch.ratio)


def test_guard_refuses_what_is_no_density():
    x = torch.zeros(1, 2, 2)
    moved = FlowCPS(0.7).transition(x, x, SCHEDULE, 0)
    with pytest.raises(ValueError, match="CPS has none"):
        guard_loss(moved, x, torch.zeros(1), x, torch.zeros(1), **CLIP)


def noised(seed, rows=4):
    generator = torch.Generator().manual_seed(seed)
    clean, noise, old = torch.randn(3, rows, 5, 2, generator=generator, dtype=torch.double)
    t = torch.rand(rows, 1, 1, generator=generator, dtype=torch.double) * 0.8 + 0.1
    return interpolate(clean, noise, t), clean, t, old, velocity_target(clean, noise)


@settings(max_examples=25)
@given(seeds, st.floats(0.01, 1), st.floats(0.2, 2), st.floats(0, 1))
def test_nft_is_least_between_the_sample_and_its_mirror_image(seed, r, beta, negative):
    x_t, clean, t, old, target = noised(seed)
    optimal = torch.full((4,), r, dtype=torch.double)
    away = negative * (1 - r)
    best = (old + (r - away) / (r + away) / beta * (target - old)).requires_grad_()
    nft_loss(best, old, x_t, clean, t, optimal, beta=beta, negative=negative, weighting="none").sum().backward()
    torch.testing.assert_close(best.grad, torch.zeros_like(best), rtol=0, atol=1e-10)


@settings(max_examples=25)
@given(seeds, st.sampled_from(["error", "none"]))
def test_nft_learns_nothing_from_the_middling_and_opposites_from_good_and_bad(seed, weighting):
    x_t, clean, t, old, target = noised(seed)

    def gradient(r):
        velocity = old.clone().requires_grad_()
        optimal = torch.full((4,), r, dtype=torch.double)
        nft_loss(velocity, old, x_t, clean, t, optimal, weighting=weighting).sum().backward()
        return velocity.grad

    torch.testing.assert_close(gradient(0.5), torch.zeros_like(old), rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient(1.0), -gradient(0.0))
    assert (gradient(1.0) * (target - old)).sum() < 0


def test_optimality_and_anchor():
    assert optimality(torch.tensor([-9.0, -2.5, 0.0, 5.0, 9.0]), 5.0).tolist() == [0.0, 0.25, 0.5, 1.0, 1.0]
    x = torch.tensor([[[1.0], [3.0]]])
    assert anchor(x, torch.zeros_like(x), torch.tensor([[[True], [False]]])).tolist() == [1.0]


def test_dppo_leaves_out_what_is_far_and_pushed_further():
    """Six steps of two numbers, std 1, drawn at mean + 1 each: D = d^2 / 2, log ratio = (1 - (1 - d)^2) / 2."""
    moved = torch.tensor([0.1, 0.1, 0.5, 0.5, -0.5, -0.5])
    old_mean = torch.zeros(6, 2)
    value = old_mean + 1
    mean = (old_mean + moved[:, None]).requires_grad_()
    one = torch.ones(1, 1)
    old = Transition(old_mean, one, one, "gaussian").log_prob(value)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    found = dppo_loss(Transition(mean, one, one, "gaussian"), value, old, old_mean, advantage, divergence=0.02)
    ratio = torch.exp((1 - (1 - moved) ** 2) / 2)
    torch.testing.assert_close(found.ratio, ratio)
    # D is 0.005 for the first two, 0.125 for the others: of those A > 0, r > 1 and A < 0, r < 1 are left out.
    kept = torch.tensor([1.0, 1, 0, 1, 1, 0])
    torch.testing.assert_close(found.loss, (-advantage * ratio * kept).mean())
    assert float(found.clipped_high) == pytest.approx(1 / 6) and float(found.clipped_low) == pytest.approx(1 / 6)
    found.loss.backward()
    torch.testing.assert_close(mean.grad[:, 0], -advantage * ratio * kept * (1 - moved) / 2 / 6)
    wide = dppo_loss(Transition(mean, one, one, "gaussian"), value, old, old_mean, advantage, divergence=0.2)
    torch.testing.assert_close(wide.loss, (-advantage * ratio).mean())


def test_awm_is_matching_weighted_by_the_advantage_and_clipped():
    generator = torch.Generator().manual_seed(0)
    old, target = torch.randn(2, 4, 3, generator=generator).unbind()
    advantage, mask = torch.tensor([2.0, -1.0, 9.0, 0.0]), torch.tensor([[True, True, False]] * 4)
    velocity = old.clone().requires_grad_()
    clip = {"clip_low": 0.1, "clip_high": 0.1}
    found = awm_loss(velocity, old, target, advantage, mask, **clip)
    assert torch.equal(found.log_ratio, torch.zeros(4)) and torch.equal(found.ratio, torch.ones(4))
    found.loss.backward()
    weight = torch.tensor([2.0, -1.0, 5.0, 0.0])  # within the advantage clip
    torch.testing.assert_close(velocity.grad, weight[:, None] * (old - target) * mask / 4)  # of mean A (v - target)^2
    moved = awm_loss(target, old, target, advantage, mask, **clip)
    error = ((old - target).square() * mask).sum(1) / 2
    torch.testing.assert_close(moved.log_ratio, error)
    ratio = error.exp()
    terms = torch.stack([-2 * ratio[0].clamp(max=1.1), ratio[1], -5 * ratio[2].clamp(max=1.1), torch.zeros(())])
    torch.testing.assert_close(moved.loss, terms.mean())
