"""Identities of the rectified flow, its schedules and the windows of random steps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.flow.euler import euler_step
from uni_train.flow.objective import clean_from_velocity, interpolate, velocity_from_clean, velocity_target
from uni_train.flow.schedule import inference_timesteps, shift_timestep
from uni_train.flow.window import Window, epoch_window, sliding_window

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


@settings(max_examples=25)
@given(st.integers(0, 2**40), st.integers(0, 10_000), st.integers(1, 4))
def test_an_epochs_window_is_the_same_wherever_it_is_drawn(seed, epoch, size):
    window = epoch_window(seed, epoch, size, (1, 7))
    assert window == epoch_window(seed, epoch, size, (1, 7))
    assert window.start >= 1 and window.start + window.size <= 7


def test_windows_of_a_run_are_not_all_one():
    starts = [epoch_window(3, epoch, 2, (0, 5)).start for epoch in range(400)]
    assert all(70 < starts.count(start) < 130 for start in range(4))
    with pytest.raises(ValueError, match="does not fit"):
        epoch_window(0, 0, 6, (0, 5))


def test_a_sliding_window_moves_and_stays_at_the_end():
    assert [sliding_window(epoch, 3, (1, 6), 2).start for epoch in range(8)] == [1, 1, 2, 2, 3, 3, 3, 3]
    assert sliding_window(1000, 3, (0, 3), 25) == Window(0, 3)
