"""Kills over STARS and `eval`, beside full disks and second processes: no number may change.

`python bench/torture.py --kills 100` is the nightly form, over every kind of recipe.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_kills_change_no_number(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "bench" / "torture.py"),
        "--kills",
        "3",
        "--only",
        "stars,eval",
        "--ranks",
        "1",
    ]
    done = subprocess.run([*command, "--work", str(tmp_path / "work")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    total = next(line for line in done.stdout.splitlines() if line.startswith("| **all**"))
    killed, *_, differing, samples, lost, repeated, again, bad = (int(cell) for cell in total.split("|")[2:-1])
    assert killed == 3 and samples > 50
    assert (differing, lost, repeated, again, bad) == (0, 0, 0, 0, 0)


def test_what_differs_is_named() -> None:
    """Of the comparison itself: one that finds nothing would pass everything."""
    from bench.torture import TOLERANCE, differences

    expected = {"scores": [0.5, 1], "weights": np.ones(3), "text": "a"}
    assert list(differences(expected, expected, True)) == []
    near = {"scores": [0.5 + TOLERANCE / 4, 1], "weights": np.ones(3), "text": "a"}
    assert list(differences(near, expected, True)) == [".scores[0] is 0.50025, expected 0.5"]
    assert list(differences(near, expected, False)) == []
    far = {"scores": [0.6, 1], "weights": np.zeros(3), "more": 1}
    assert [line.split(" ")[0] for line in differences(far, expected, False)] == [
        ".more", ".scores[0]", ".text", ".weights:",
    ]  # fmt: skip
