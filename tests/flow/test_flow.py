"""Identities of the rectified flow."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uni_train.flow.euler import euler_step
from uni_train.flow.guidance import Guidance
from uni_train.flow.objective import clean_from_velocity, interpolate, velocity_from_clean, velocity_target
from uni_train.flow.schedule import inference_timesteps, shift_timestep

unit = st.floats(0, 1)
shift = st.floats(0.2, 10)


@given(unit, shift)
def test_shift_is_a_bijection_of_the_unit_interval(t, s):
    moved = shift_timestep(torch.tensor(t, dtype=torch.double), s)
    assert 0 <= moved <= 1 + 1e-12
    assert abs(shift_timestep(moved, 1 / s) - t) < 1e-9


@given(st.integers(2, 60), shift)
def test_schedule_falls_from_one_to_zero(n, s):
    times = inference_timesteps(n, s)
    assert len(times) == n and abs(times[0] - 1) < 1e-6 and times[-1] == 0
    assert (times.diff() < 0).all()
    with pytest.raises(ValueError, match="at least 2"):
        inference_timesteps(1, 1.0)


@given(st.floats(0.05, 1), st.integers(0, 1000))
def test_the_velocity_carries_between_noise_and_image(t, seed):
    generator = torch.Generator().manual_seed(seed)
    clean, noise = torch.randn(2, 3, 4, generator=generator, dtype=torch.double)
    level = torch.tensor(t, dtype=torch.double)
    x = interpolate(clean, noise, level)
    v = velocity_target(clean, noise)
    torch.testing.assert_close(euler_step(x, v, t, 0.0), clean)
    torch.testing.assert_close(clean_from_velocity(x, v, level), clean)
    torch.testing.assert_close(velocity_from_clean(x, clean, level), v)


def test_guidance_is_off_without_a_text_scale_and_outside_the_interval():
    guidance = Guidance(text_scale=4.0, interval=(0.4, 1.0))
    assert guidance.text_on(1.0) and not guidance.text_on(0.4)
