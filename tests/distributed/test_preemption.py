"""Runs that are told to end: a checkpoint at the next update of all ranks, and the numbers of an unbroken run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from uni_train.distributed.preemption import agreed, deferred, preemptible

ROOT = Path(__file__).parents[2]
AFTER = "; the same command continues from there\n"


@pytest.mark.multinode
@pytest.mark.slow
def test_told_ranks_save_at_the_next_update_and_continue_as_if_nothing_had_been(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.distributed.preempted_driver", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs are born ignoring it
    )
    assert ended.returncode == 0, ended.stderr
    unbroken, told, continued, alone, again, last, interrupted = map(json.loads, ended.stdout.splitlines())
    assert unbroken["codes"] == [0, 0]
    assert told["codes"] == [75, 75]
    assert told["saved"] == ["step=00000015", "step=00000022"]
    assert told["said"][0].endswith(f"another rank was told to end: update 22 is saved{AFTER}")
    assert told["said"][1].endswith(f"SIGUSR1: update 22 is saved{AFTER}")
    assert continued["codes"] == [0, 0]
    for name in ("final.safetensors", "metrics.jsonl"):
        assert (tmp_path / "told" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes(), name

    assert alone["codes"] == [75] and alone["saved"] == ["step=00000010"]
    assert again["codes"] == [75] and again["saved"] == ["step=00000015", "step=00000030"]
    # Finished, and then told outside of a fit.
    assert last["codes"] == [75] and last["said"][0].endswith(f"SIGTERM: what is finished is kept{AFTER}")
    assert len((tmp_path / "alone" / "metrics.jsonl").read_text().splitlines()) == 40
    assert interrupted["codes"] == [130, 130] and interrupted["saved"] == ["step=00000010"]
    for said in interrupted["said"]:
        assert said.endswith("interrupted: update 10 is saved; run the same command again to continue\n")


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
