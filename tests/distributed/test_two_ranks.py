"""Two ranks of two installations: what preflight says of their differences, and the watchdog of their hangs."""

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
def test_ranks_that_differ_and_ranks_that_hang_are_named(tmp_path: Path) -> None:
    for name in ("uni_train", "recipes", "configs"):
        without = shutil.ignore_patterns("*.safetensors", "__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "code0" / name, ignore=without)
    shutil.copytree(tmp_path / "code0", tmp_path / "code1")
    for rank in range(2):
        (tmp_path / f"node{rank}").mkdir()
        (tmp_path / f"node{rank}" / "rows.jsonl").write_text(f"rows of node {rank}")
    (tmp_path / "rows.jsonl").write_text("rows")
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ranks_driver.py")), str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    compared, slept, stopped = map(json.loads, ended.stdout.splitlines())
    host = platform.node()

    assert compared["codes"] == [0, 0]
    assert compared["said"][0] == compared["said"][1]
    fine, configuration, data, folder, code, versions = compared["said"][0].splitlines()
    assert fine == "fine"
    differ = f"rank 1 ({host}) and rank 0 ({host}) differ in their "
    assert configuration == f"{differ}configuration: seed 1, on rank 0 0"
    assert data == f"{differ}data: sources.rows.path (rows.jsonl)"
    assert folder == f"runs is not the same folder on rank 0 ({host}) and on rank 1 ({host})"
    assert code == f"{differ}code: uni_train/flow/steps.py"
    assert versions.startswith(f"{differ}versions: safetensors 0.0.1, on rank 0 ")
    assert not list(tmp_path.rglob(".preflight*"))

    # Rank 0 slept, and says so itself, once, though rank 1 found it.
    assert slept["codes"] == [1, 1]
    assert slept["said"][1] == ""
    said = slept["said"][0]
    assert said.startswith(f"error: rank 0 ({host}, pid {slept['pids'][0]}) did not arrive at all_gather (collective ")
    assert "where rank 1 waited for" in said and "If it was only slow" in said
    assert "it has been at" in said and "oversleep, stage 03-finetune-math1, update 3 for" in said

    # Rank 1 was stopped; when it wakes up it finds the report, and ends as well.
    assert stopped["codes"] == [1, 1]
    assert stopped["said"][1] == ""
    said = stopped["said"][0]
    assert said.startswith(f"error: rank 1 ({host}, pid {stopped['pids'][1]}) did not arrive at all_gather")
    assert "it has given no sign of life for" in said and "stage 03-finetune-math1, update 3" in said
    hang = json.loads((tmp_path / "logs" / "hang.json").read_text())
    assert hang["message"] in said
    assert [state["rank"] for state in hang["ranks"]] == [0, 1]
