"""A run that is killed again and again, and runs out of disk, ends like one that was left alone."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.multinode.driver import drive
from tests.test_run_stages import numbers
from tests.tiny import TINY, shards
from uni_train.eval.scored import read_scored

MOUNT = ("unshare", "--map-root-user", "--mount")


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    mount = [*MOUNT, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/tmp"]
    return subprocess.run(mount, capture_output=True).returncode == 0


def assert_no_shard_was_touched_again(reports: list[dict[str, Any]]) -> None:
    seen: dict[str, list[int]] = {}
    for report in reports:
        assert seen.items() <= report["shards"].items()
        seen |= report["shards"]


def assert_same_run(run: Path, expected: Path) -> None:
    assert numbers(run) == numbers(expected)
    for mine, other in zip(shards(run), shards(expected), strict=True):
        assert mine.relative_to(run) == other.relative_to(expected)
        assert read_scored(mine) == read_scored(other)
    for name in ("00-evaluate-before", "10-evaluate-after"):
        mine, other = (sorted((one / "stages" / name / "scored").iterdir()) for one in (run, expected))
        assert [file.name for file in mine] == [file.name for file in other], "named by their content"
    for pattern in ("stages/*/model/model.safetensors", "stages/*/metrics.jsonl"):
        for other in sorted(expected.glob(pattern)):
            assert (run / other.relative_to(expected)).read_bytes() == other.read_bytes(), other
    assert (run / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_kill_9_at_any_moment_and_full_disks_cost_no_finished_sample_and_no_number(
    finished: Path, tmp_path: Path
) -> None:
    """A disk is full before anything is sampled and in the midst of work; then no file may be as long as a checkpoint.
    Where this machine lets nobody mount a disk, only the latter."""
    moments = random.Random(5)
    checkpoint = max(file.stat().st_size for file in finished.glob("stages/03-*/checkpoints/*/state.safetensors"))
    limit = {"bytes": checkpoint - 200}
    kills: list[dict[str, Any]] = [
        {"fault": {"rank": 0, "path": "", "write": moments.randint(8, 90), "does": "kill"}} for _ in range(2)
    ]
    starts: list[tuple[int, dict[str, Any]]] = [(1, limit), *((-9, kill) for kill in kills), (0, {}), (0, {})]
    out, prefix = tmp_path, ()
    if can_mount():
        out, prefix = tmp_path / "small", MOUNT
        full = [(1, {"disk": size}) for size in ("24k", "1600k")]
        starts = [*full, (1, {"disk": "64m", **limit}), *starts[1:]]
    command = ("fit", "--recipe", "stars_curriculum", *TINY, f"out={out}")
    steps = [("troubled", command, {"each": 0, **step}) for _, step in starts]
    reports = drive(tmp_path, steps, *prefix)["stars_curriculum/troubled"]
    assert [report["exits"] for report in reports] == [[code] for code, _ in starts], reports
    for (code, step), report in zip(starts, reports, strict=True):
        if code == 1:
            (message,) = report["err"]
            assert message.startswith("error:") and "Traceback" not in message and len(message) < 900
            assert str(out) in message and ("bytes" in step or re.search("full|[Nn]o space", message))
    assert reports[len(starts) - 5]["shards"], "the limit of a file's length is met after samples are drawn"
    assert_no_shard_was_touched_again(reports)
    assert_same_run((tmp_path / "kept" if prefix else out) / "stars_curriculum/troubled", finished)
