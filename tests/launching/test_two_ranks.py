"""Two processes of two installations: what preflight says of their differences, and the watchdog of their hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("ranks_driver.py")


def start(folder: Path, installed: list[Path], how: str) -> list[subprocess.Popen[str]]:
    """Two nodes of one rank each, with the code of a folder of their own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    placed = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [sys.executable, str(DRIVER), str(folder), how]
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **placed, "RANK": str(rank), "PYTHONPATH": str(code)},
            cwd=code,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, code in enumerate(installed)
    ]


@pytest.mark.multinode
@pytest.mark.slow
def test_ranks_that_differ_are_told_how_and_one_that_sleeps_is_named(tmp_path: Path) -> None:
    codes = [tmp_path / "code0", tmp_path / "code1"]
    for rank, code in enumerate(codes):
        for name in ("uni_train", "data_gen", "eval", "recipes", "configs"):
            without = shutil.ignore_patterns("*.safetensors", "__pycache__")
            shutil.copytree(ROOT / name, code / name, ignore=without)
        (tmp_path / f"node{rank}").mkdir()
        (tmp_path / f"node{rank}" / "rows.jsonl").write_text(f"{rank}")
    for name in ("uni_train", "data_gen", "eval"):  # the same at one moment, though others may be editing the checkout
        shutil.rmtree(codes[1] / name)
        shutil.copytree(codes[0] / name, codes[1] / name)
    (tmp_path / "rows.jsonl").write_text("rows")
    ranks = start(tmp_path, codes, "compare")
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    told = [(tmp_path / f"told{rank}").read_text().splitlines() for rank in range(2)]
    assert told[0] == told[1]
    fine, configuration, data, folder, code, versions = told[0]
    who = f"rank 1 ({socket.gethostname()}) and rank 0 ({socket.gethostname()}) differ in their "
    assert fine == "fine"
    assert configuration == f"{who}configuration: seed 1, on rank 0 0"
    assert data == f"{who}data: sources.rows.path (rows.jsonl)"
    assert folder.startswith("runs is not the same folder on rank 0 (") and "on rank 1 (" in folder
    assert code == f"{who}code: uni_train/flow/steps.py"
    assert versions.startswith(f"{who}versions: safetensors 0.0.1, on rank 0 ")
    assert not list(tmp_path.rglob(".preflight*"))

    # Rank 0 slept; its watchdog says so, once, though rank 1 found it.
    assert [rank.returncode for rank in ranks] == [1, 1]
    assert errors[1] == ""
    assert f"error: rank 0 ({socket.gethostname()}, pid {ranks[0].pid}) did not arrive at all_gather" in errors[0]
    assert "where rank 1 waited for" in errors[0]
    assert "ranks_driver.py:" in errors[0] and "oversleep, stage 03-finetune-math1, update 3" in errors[0]
    hang = json.loads((tmp_path / "logs" / "hang.json").read_text())
    assert hang["message"] in errors[0]
    assert any("oversleep" in frame for frame in hang["ranks"][0]["frames"])


@pytest.mark.multinode
@pytest.mark.slow
def test_a_rank_that_has_stopped_altogether_is_named(tmp_path: Path) -> None:
    ranks = start(tmp_path, [ROOT, ROOT], "stop")
    try:
        _, error = ranks[0].communicate(timeout=60)
        assert ranks[0].returncode == 1
        assert f"pid {ranks[1].pid}) did not arrive at all_gather" in error
        assert "it has given no sign of life for" in error and "ranks_driver.py:" in error
        ranks[1].send_signal(signal.SIGCONT)  # it finds the report, and ends as well
        _, error = ranks[1].communicate(timeout=30)
        assert ranks[1].returncode == 1
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
