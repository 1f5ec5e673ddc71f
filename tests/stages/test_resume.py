"""A run that is killed again and again, or runs out of disk, ends like one that was left alone."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.multinode.driver import Start, drive
from tests.once import once
from tests.test_run_stages import numbers
from tests.tiny import TINY, shards
from uni_train.eval.scored import read_scored


def assert_no_shard_was_touched_again(name: str, reports: list[dict[str, Any]]) -> None:
    seen: dict[str, list[int]] = {}
    for report in reports:
        mine = {file: stamp for file, stamp in report["shards"].items() if f"/{name}/" in file}
        assert seen.items() <= mine.items()
        seen |= mine


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
def runs(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    """Troubled runs, "killed", "limited" and, where this machine lets us mount a disk, "small"; what became of each."""

    def start(out: Path) -> dict[str, list[dict[str, Any]]]:
        moments, fit = random.Random(5), ("fit", "--recipe", "stars_curriculum", *TINY)
        troubles: list[tuple[str, dict[str, Any]]] = []
        for _ in range(3):
            fault = {"rank": 0, "path": "", "write": moments.randint(8, 90), "does": "kill"}
            troubles += [("killed", {"fault": fault}), ("killed", {"seconds": moments.uniform(0.3, 1.5)})]
        for pattern in ("stages/00-*/scored/*", "stages/03-*/checkpoints/*/state.safetensors"):
            largest = max(file.stat().st_size for file in finished.glob(pattern))
            troubles.append(("limited", {"bytes": largest - 200}))
        troubles += [(name, {}) for name in ("killed", "killed", "limited")]
        starts: list[Start] = [(name, fit, more | {"each": 0}) for name, more in troubles]
        if not can_mount():
            return drive(out, starts)
        small = (*fit, f"out={out / 'small'}")
        starts += [("small", small, {"each": 0, "disk": size}) for size in ("24k", "300k", "1600k", "64m")]
        return drive(out, starts, "unshare", "--map-root-user", "--mount")

    return once(tmp_path_factory, "troubled", start)


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    mount = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/tmp"]
    return subprocess.run(mount, capture_output=True).returncode == 0


@pytest.mark.slow
def test_kill_9_at_any_moment_costs_no_finished_sample_and_no_number(runs, finished: Path) -> None:
    out, reports = runs
    mine = reports["stars_curriculum/killed"]
    exits = [report["exits"][0] for report in mine]
    assert exits.count(-9) >= 4, exits
    assert set(exits) <= {-9, 0} and exits[-2:] == [0, 0], mine[-1]["err"]
    assert_no_shard_was_touched_again("killed", mine)
    assert_same_run(out / "stars_curriculum/killed", finished)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder", "said"), [("limited", "", "error:"), ("small", "kept", r"full|[Nn]o space")]
)
def test_a_disk_that_has_no_room_stops_the_run_with_one_message_and_it_goes_on_afterwards(
    runs, finished: Path, name: str, folder: str, said: str
) -> None:
    """Before it has sampled, and while it writes a checkpoint; "limited": no file may be longer."""
    out, reports = runs
    if f"stars_curriculum/{name}" not in reports:
        pytest.skip("this machine lets nobody mount a small disk of their own")
    *stopped, last = reports[f"stars_curriculum/{name}"]
    for report in stopped:
        assert report["exits"] == [1], report
        (message,) = report["err"]
        assert message.startswith("error:") and "Traceback" not in message and len(message) < 900
        assert re.search(said, message) and str(out) in message
    if name == "limited":
        assert [any("/limited/" in file for file in report["shards"]) for report in stopped] == [False, True]
    assert last["exits"] == [0], last["err"]
    assert_no_shard_was_touched_again(name, [*stopped, last])
    assert_same_run(out / folder / "stars_curriculum" / name, finished)
