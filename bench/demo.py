"""The main job beside another checkout's: `make bench-demo`, or

    python bench/demo.py --against ../main [--rounds 3] [--recipe stars_curriculum] [KEY=VALUE ...]

Both checkouts run `fit` in turn, so that a slow moment meets both alike; each round is a pair, and the order changes
from round to round. Printed: the wall clock, CPU seconds of all processes, the most memory that all of them hold
together, their ratios a pair (medians), and each run's accuracies. Without --against one checkout is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import interval, row, table
from bench.timing import family_memory, machine
from uni_train.eval.statistics import Estimate

ROOT = Path(__file__).resolve().parents[1]
PAUSE = 1.0  # seconds between two looks at the memory


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run. peak: bytes in all its processes together, each shared page counted in parts (PSS)."""

    wall: float
    cpu: float
    peak: int
    summary: dict[str, Any]


def run(checkout: Path, recipe: str, overrides: list[str]) -> Cost:
    """`fit` in a checkout. Raises SystemExit with its output where it fails."""
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", "uni_train", "fit", "--recipe", recipe, f"out={out}", *overrides]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        before, began, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
        process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        while process.poll() is None:
            peak = max(peak, family_memory(process.pid))
            time.sleep(PAUSE)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"{checkout} ended with {process.returncode}:\n{log.read()[-2000:]}")
        (summary,) = Path(out).glob("*/*/summary.json")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cost(wall, cpu, peak, json.loads(summary.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="PATH", help="another checkout")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--recipe", default="stars_curriculum")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    chosen = parser.parse_args()
    checkouts = {"here": ROOT} | ({"there": chosen.against.resolve()} if chosen.against else {})
    costs: dict[str, list[Cost]] = {name: [] for name in checkouts}
    for number in range(chosen.rounds):
        for name in list(checkouts)[:: -1 if number % 2 else 1]:
            costs[name].append(run(checkouts[name], chosen.recipe, chosen.overrides))
    print(f"{machine()}\n\n`fit {' '.join([chosen.recipe, *chosen.overrides])}`, medians of {chosen.rounds}:\n")
    print(*table("checkout", "wall, s", "CPU s", "peak, GB"), sep="\n")
    parts = ("wall", "cpu", "peak")
    for name, some in costs.items():
        wall, cpu, peak = (statistics.median(getattr(one, part) for one in some) for part in parts)
        print(row(f"{name}: {checkouts[name]}", f"{wall:.1f}", f"{cpu:.1f}", f"{peak / 1e9:.2f}"))
    if chosen.against:
        pairs = list(zip(costs["here"], costs["there"], strict=True))
        ratios = (statistics.median(getattr(a, part) / getattr(b, part) for a, b in pairs) for part in parts)
        print(row("**here / there**", *(f"**{ratio:.2f}**" for ratio in ratios)))
    print()
    sets = {name: costs[name][0].summary["scores"] for name in checkouts}
    names = list(next(iter(next(iter(sets.values()))["after"].values())))
    print(*table("accuracy, 95 % over questions", *names), sep="\n")
    for name, scores in sets.items():
        for when, by_setting in scores.items():
            for setting, found in by_setting.items():
                cells = (interval(Estimate.from_dict(found[one]) if one in found else None) for one in names)
                print(row(f"{name}, {setting}, {when}", *cells))


if __name__ == "__main__":
    main()
