"""A run that is killed again and again, or runs out of disk, ends like one that was left alone."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.once import once
from tests.stages.test_run import numbers
from tests.tiny import TINY, shards
from uni_train.eval.scored import read_scored

ROOT = Path(__file__).resolve().parents[2]


def drive(out: Path, steps: list[dict[str, Any]], *prefix: str) -> list[dict[str, Any]]:
    """What the crash driver reports of every step; the last entry is the summary ({} if there is none)."""
    command = [*prefix, sys.executable, "-m", "tests.stages.crash_driver", str(out), json.dumps(steps), *TINY]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n", len(steps))
    return [json.loads(line) for line in lines]


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


@pytest.fixture(scope="module")
def runs(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Two troubled runs, "killed" and "limited", and what became of their starts."""
    moments = random.Random(5)
    steps: list[dict[str, Any]] = []
    for _ in range(4):
        steps.append({"name": "killed", "write": moments.randint(8, 40)})
        steps.append({"name": "killed", "seconds": moments.uniform(0.1, 0.5)})
    for pattern in ("stages/00-*/scored/*", "stages/03-*/checkpoints/*/state.safetensors"):
        largest = max(file.stat().st_size for file in finished.glob(pattern))
        steps.append({"name": "limited", "file_bytes": largest - 200})
    steps += [{"name": name} for name in ("killed", "killed", "limited")]
    out, reports = once(tmp_path_factory, "troubled", lambda out: drive(out, steps)[:-1])
    named = [report | {"name": step["name"]} for step, report in zip(steps, reports, strict=True)]
    return out / "stars_curriculum", named


@pytest.mark.slow
def test_kill_9_at_any_moment_costs_no_finished_sample_and_no_number(runs, finished: Path) -> None:
    folder, reports = runs
    mine = [report for report in reports if report["name"] == "killed"]
    statuses = [report["status"] for report in mine]
    assert statuses.count(-9) >= 4, statuses
    assert set(statuses) <= {-9, 0} and statuses[-2:] == [0, 0], mine[-1]["stderr"]
    assert_no_shard_was_touched_again(mine)
    assert_same_run(folder / "killed", finished)


def test_a_file_that_cannot_grow_stops_the_run_with_one_message_and_it_goes_on_afterwards(runs, finished: Path) -> None:
    """Limits that end the run while it evaluates, before it has sampled, and while it writes a checkpoint."""
    folder, reports = runs
    *stopped, last = (report for report in reports if report["name"] == "limited")
    for report in stopped:
        assert report["status"] == 1, report
        assert "Traceback" not in report["stderr"] and len(report["stderr"]) < 900
        assert report["stderr"].startswith("error:") and str(folder / "limited") in report["stderr"]
    assert [len(report["shards"]) > 0 for report in stopped] == [False, True]
    assert last["status"] == 0, last["stderr"]
    assert_no_shard_was_touched_again([*stopped, last])
    assert_same_run(folder / "limited", finished)


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = "mount -t tmpfs -o size=64k tmpfs /tmp"
    return (
        subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", probe], capture_output=True).returncode
        == 0
    )


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="this machine lets nobody mount a small disk of their own")
def test_a_full_disk_stops_the_run_with_one_message_and_it_goes_on_afterwards(finished: Path, tmp_path: Path) -> None:
    sizes = ["24k", "300k", "1600k"]
    steps = [{"name": "small", "disk": size} for size in (*sizes, "64m")]
    *reports, summary = drive(tmp_path, steps, "unshare", "--map-root-user", "--mount")
    for step, report in zip(steps[:-1], reports[:-1], strict=True):
        assert report["status"] == 1, (step, report)
        assert "Traceback" not in report["stderr"] and len(report["stderr"]) < 900
        assert "full" in report["stderr"] or "No space left" in report["stderr"] or "no space" in report["stderr"]
        assert str(tmp_path) in report["stderr"]
    assert reports[-1]["status"] == 0, reports[-1]["stderr"]
    assert_no_shard_was_touched_again(reports)
    expected = numbers(finished)
    assert summary["scores"] == expected["scores"]
    assert [one["kept"] for one in summary["rounds"]] == [one["kept"] for one in expected["rounds"]]
