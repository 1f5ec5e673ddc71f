"""Windows depend on run and epoch alone; MixGRPO's slides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.flow.window import Window, epoch_window, sliding_window


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
