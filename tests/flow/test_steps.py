"""Random steps: their density, what they keep of a distribution, and what they come down to without noise."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.flow.euler import euler_step
from uni_train.flow.rollout import roll_out
from uni_train.flow.schedule import DynamicShift, Schedule, bagel_schedule
from uni_train.flow.steps import DanceSDE, FlowCPS, FlowSDE, step_rule
from uni_train.flow.window import Window

names = st.sampled_from(["flow_grpo", "bagel", "cps", "dance"])
level = st.floats(0.05, 1)
seeds = st.integers(0, 1000)
SCHEDULE = bagel_schedule(9, 3.0)


def draws(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) for _ in range(100))


@settings(max_examples=25)
@given(names, st.integers(0, 7), seeds)
def test_without_noise_a_step_is_eulers(name, step, seed):
    x, v, noise, *_ = draws(seed, 2, 5, 4)
    moved = step_rule(name, 0.0).transition(x, v, SCHEDULE, step)
    torch.testing.assert_close(moved.sample(noise), euler_step(x, v, *SCHEDULE.step(step)), rtol=0, atol=0)
    assert not step_rule(name, 0.0).trainable_steps(SCHEDULE)
    almost = step_rule(name, 1e-5).transition(x, v, SCHEDULE, step)
    torch.testing.assert_close(almost.sample(noise), moved.mean, rtol=1e-3, atol=1e-3)


@settings(max_examples=25)
@given(names, level, seeds)
def test_padding_is_left_alone_and_does_not_count(name, noise_level, seed):
    x, v, noise, other, *_ = draws(seed, 1, 4, 3)
    rule, mask = step_rule(name, noise_level), torch.tensor([True, True, True, False])[None, :, None]
    padded = rule.transition(x * mask, v * mask, SCHEDULE, 2, mask)
    alone = rule.transition(x[:, :3], v[:, :3], SCHEDULE, 2)
    value = padded.sample(noise)
    assert (value[:, 3] == 0).all()
    torch.testing.assert_close(padded.log_prob(value), alone.log_prob(alone.sample(noise[:, :3])))
    torch.testing.assert_close(padded.kl(other * mask), alone.kl(other[:, :3]))


def final_moments(rule, steps, mean, std):
    """Mean and standard deviation at t = 0 of one-dimensional N(mean, std^2), with the exact velocity.

    That velocity and all steps are affine in x, so mean and variance are carried along without sampling.
    """
    levels = torch.linspace(1, 0, steps + 1, dtype=torch.double)
    schedule = Schedule(levels)
    m, variance = 0.0, 1.0
    for step in range(steps):
        t = float(levels[step])
        x = torch.tensor([[0.0], [1.0]], dtype=torch.double)
        total = (1 - t) ** 2 * std**2 + t**2
        slope = (t - (1 - t) * std**2) / total  # cov(noise - image, x) / var(x)
        moved = rule.transition(x, -mean + slope * (x - (1 - t) * mean), schedule, step)
        offset, factor = float(moved.mean[0]), float(moved.mean[1] - moved.mean[0])
        m, variance = factor * m + offset, factor**2 * variance + float(moved.std) ** 2
    return m, variance**0.5


@pytest.mark.parametrize("rule", [FlowSDE(0.7), FlowSDE(1.3), DanceSDE(0.3), DanceSDE(1.0)], ids=str)
def test_an_sde_keeps_the_distribution_as_steps_get_small(rule):
    few, many = (final_moments(rule, steps, mean=0.6, std=0.4) for steps in (20, 2000))
    assert abs(many[0] - 0.6) < 2e-3 and abs(many[1] - 0.4) < 4e-3
    assert abs(few[1] - 0.4) > abs(many[1] - 0.4)


@settings(max_examples=25)
@given(level, st.integers(1, 30), st.floats(-2, 2))
def test_cps_leaves_no_noise_however_few_steps(noise_level, steps, mean):
    """All data at one point: image and noise are known exactly, and any share of the noise may be new."""
    m, std = final_moments(FlowCPS(noise_level), steps, mean, 0.0)
    assert abs(m - mean) < 1e-9 and std < 1e-6
    if steps > 1:
        assert final_moments(FlowSDE(noise_level), steps, mean, 0.0)[1] > 1e-3


@pytest.mark.parametrize("family", ["qwen_image", "bagel"])
def test_the_first_step_has_no_pole_whatever_the_shift_rounds_to(family):
    schedules = [DynamicShift().schedule(8, tokens) for tokens in range(64, 8192, 129)]
    if family == "bagel":
        schedules = [bagel_schedule(8, shift / 100) for shift in range(20, 1000, 7)]
    assert {float(schedule.levels[0]) for schedule in schedules} != {1.0}
    x = torch.zeros(1, 1, 1)
    for schedule in schedules:
        assert FlowSDE(1.0).transition(x, x, schedule, 0).diffusion ** 2 < 1.001 / (1 - schedule.ceiling)


def linear(x, t):
    return 0.3 * x + t


@settings(max_examples=25)
@given(names, st.sampled_from([torch.float32, torch.bfloat16]), st.integers(0, 4), st.integers(1, 3), seeds)
def test_what_was_stored_scores_as_it_did(name, dtype, start, size, seed):
    """Unchanged weights: the ratio is exactly 1, also of latents that are kept in bfloat16."""
    x, *noise = draws(seed, 2, 5, 4)
    rule = step_rule(name, 0.7)
    run = roll_out(linear, x, SCHEDULE, rule, Window(start, size), noise.__getitem__, dtype=dtype, keep_means=True)
    assert run.latents.dtype == dtype and run.latents.shape == (2, size + 1, 5, 4)
    for index, step in enumerate(run.window.steps):
        stored = run.latents[:, index].float()
        again = rule.transition(stored, linear(stored, SCHEDULE.levels[step]), SCHEDULE, step)
        assert torch.equal(again.mean, run.means[:, index])
        assert torch.equal(again.log_prob(run.latents[:, index + 1]), run.log_probs[:, index])


def test_a_window_needs_steps_with_noise():
    x = torch.zeros(1, 2, 2)
    with pytest.raises(ValueError, match=r"share in \[0, 1\]"):
        step_rule("cps", 1.2)
    with pytest.raises(ValueError, match="at least 0"):
        step_rule("flow_grpo", -0.1)
    for rule, window, message in (
        (FlowCPS(0.7), Window(6, 2), "only those from 0 to 6 of 8"),
        (FlowSDE(0.7), Window(7, 2), "only those from 0 to 7 of 8"),
        (FlowSDE(0.0), Window(0, 1), "noise level is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            roll_out(linear, x, SCHEDULE, rule, window, lambda step: x)


@pytest.mark.parametrize("name", ["flow_grpo", "cps", "dance"])
def test_images_with_noise_levels_of_their_own_step_as_they_would_alone(name) -> None:
    each = [DynamicShift().schedule(6, tokens) for tokens in (256, 4096, 256)]
    assert Schedule.together(each[::2]) is each[0]
    both = Schedule.together(each)
    x, v, value, *_ = draws(3, 3, 5, 4)
    rule = step_rule(name, 0.7)
    for step in (2, torch.tensor([0, 3, 4])):
        moved = rule.transition(x, v, both, step)
        for row, schedule in enumerate(each):
            alone = rule.transition(x[[row]], v[[row]], schedule, step if isinstance(step, int) else step[[row]])
            assert torch.equal(moved.mean[[row]], alone.mean)
            torch.testing.assert_close(moved.log_prob(value)[[row]], alone.log_prob(value[[row]]))
            own = (x[[row]], v[[row]])
            assert torch.equal(euler_step(*own, *both.select([row]).step(2)), euler_step(*own, *schedule.step(2)))


def test_schedules_refuse_what_does_not_fall():
    with pytest.raises(ValueError, match="must fall"):
        Schedule(torch.tensor([1.0, 1.0, 0.0]))
    with pytest.raises(ValueError, match="at least two"):
        Schedule(torch.tensor([1.0]))
    assert float(DynamicShift(terminal=None).schedule(4, 256).levels[0]) == pytest.approx(1)
