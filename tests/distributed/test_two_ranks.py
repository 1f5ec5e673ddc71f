"""Two ranks of two installations: what is said of their differences, and of one that hangs or dies."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.multinode
@pytest.mark.slow
def test_ranks_that_differ_hang_or_die_are_named(tmp_path: Path) -> None:
    for name in ("uni_train", "recipes", "configs"):
        without = shutil.ignore_patterns("*.safetensors", "__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "code0" / name, ignore=without)
    shutil.copytree(tmp_path / "code0", tmp_path / "code1")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.distributed.ranks_driver", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    compared, slept, killed, first_killed = map(json.loads, ended.stdout.splitlines())
    host = platform.node()

    assert compared["codes"] == [0, 0]
    assert compared["said"][0].splitlines()[:6] == compared["said"][1].splitlines()[:6]
    fine, configuration, code, versions, cards, shared, folder = compared["said"][0].splitlines()
    assert fine == shared == "fine"
    differ = f"rank 1 ({host}) and rank 0 ({host}) differ: "
    assert configuration.startswith(f"{differ}seed 1, on rank 0 0; ")
    assert code == f"{differ}uni_train/flow/steps.py"
    assert versions.startswith(f"{differ}version of safetensors 0.0.1, on rank 0 ")
    assert cards.startswith(f"{differ}GPU Tesla T4, on rank 0 NVIDIA A100-SXM4-80GB; ")
    assert folder == f"rank 1: {tmp_path} on {host} is not the folder of rank 0"

    # Rank 1 slept: rank 0 names it once the process group has timed out, and its log says where it was.
    assert slept["codes"][0] == 1
    assert slept["said"][0].count("error: ") == 1
    assert f"error: rank 1 on {host} did not answer: killed, or without progress" in slept["said"][0]
    assert "logs/rank1.log" in slept["said"][0]
    assert "in oversleep" in (tmp_path / "logs" / "rank1.log").read_text()

    assert killed["codes"] == [1, -9]
    assert f"error: rank 1 on {host} did not answer: killed" in killed["said"][0]

    # The store was rank 0's.
    assert first_killed["codes"] == [-9, 1]
    assert f"error: rank 0 on {host} (127.0.0.1:" in first_killed["said"][1] and "is gone" in first_killed["said"][1]
