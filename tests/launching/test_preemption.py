"""Runs that are told to end: a checkpoint at the next update of all ranks, and the numbers of an unbroken run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AFTER = "; the same command continues from there\n"


@pytest.mark.multinode
@pytest.mark.slow
def test_told_ranks_save_at_the_next_update_and_continue_as_if_nothing_had_been(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.launching.preempted_driver", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    unbroken, told, continued, alone, again, last = map(json.loads, ended.stdout.splitlines())
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
