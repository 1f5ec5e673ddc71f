"""Windows depend on run and epoch alone; MixGRPO's slides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.flow.window import SlidingWindow, Window, epoch_window


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
    slide = SlidingWindow(size=4, steps=9, every=3, stride=2)
    assert [slide.at(i).start for i in range(14)] == [0, 0, 0, 2, 2, 2, 4, 4, 4, 5, 5, 5, 5, 5]
    assert slide.at(13) == Window(5, 4)
    back = SlidingWindow(size=4, steps=9, every=3, stride=2, roll_back=True)
    assert [back.at(i).start for i in (11, 12, 14, 15)] == [5, 0, 0, 2]
    assert SlidingWindow(size=3, steps=3).at(1000) == Window(0, 3)
    with pytest.raises(ValueError, match="does not fit"):
        SlidingWindow(size=4, steps=3)


def test_a_sliding_window_can_linger_where_it_is_noisy():
    slide = SlidingWindow(size=4, steps=25, every=25, pace="exponential", decay=0.1, threshold=13)
    assert [slide.kept(start) for start in (0, 13, 14, 21)] == [25, 25, 23, 12]
    assert slide.at(25 * 14).start == 14 and slide.at(25 * 14 + 23).start == 15
