"""Ctrl-C inside and outside of a fit. What told ranks leave is in tests/training/test_ranks.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from uni_train.distributed.preemption import agreed, deferred, preemptible


@pytest.fixture
def listening() -> Iterator[None]:
    """Ctrl-C as in a terminal, also where this test runs in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_the_first_ctrl_c_waits_for_the_update_and_the_second_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(SystemExit) as ended, preemptible({}), deferred():
        assert not agreed()
        press()
        assert agreed()
    assert ended.value.code == 130
    first, last = capfd.readouterr().err.split("\n")[1:3]
    assert first == "Ctrl-C: saving after this update (Flow-GRPO: epoch); once more ends at once"
    assert last == "interrupted: this fit is finished; run the same command again to continue"
    with pytest.raises(KeyboardInterrupt), preemptible({}), deferred():
        press()
        press()
        raise AssertionError("the second one ends at once")
    with pytest.raises(KeyboardInterrupt), preemptible({}):
        press()
        raise AssertionError("outside of a fit the first one does")


def test_ctrl_c_is_left_alone_where_the_process_was_started_to_ignore_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with preemptible({}):
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
