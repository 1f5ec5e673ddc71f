"""Bad inputs of all kinds, asked in processes with limits: how many are refused, and what is said of the others.

    python bench/bad_inputs.py                     # all (bad_inputs_corpus.py), twenty minutes on a busy core
    python bench/bad_inputs.py --only YAML --only images
    python bench/bad_inputs.py --each-key 300      # so many of the overrides of each key, drawn at random

A refusal is one message and the exit code 1 or 2. Counted beside it: tracebacks; hangs (more than 10 seconds of the
processor, or 60 of the clock); ends by the limit of memory (4 GiB more than at the start); silent successes; raw escape
sequences on the terminal; messages of more than 6,000 letters. Exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bench.dev_extra  # noqa: F401

os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightning.pytorch  # noqa: F401  # before the forks
import torch  # noqa: F401

import uni_train.stages.evaluate  # noqa: F401
from bench import bad_inputs_corpus as bad_inputs
from bench.bad_inputs_corpus import Case, Outcome
from uni_train.config.compose import compose

CPU_SECONDS, CLOCK_SECONDS = 10, 60
MEMORY = 4 << 30
FAULTS = ("traceback", "hang", "memory", "silent success", "silent failure", "raw escape", "long")


def outcomes(all_cases: Sequence[Case], work: Path) -> Iterator[Outcome]:
    """The outcome of each case, found by forks with limits: a new one after each that was ended by them."""
    done = 0
    while done < len(all_cases):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _child(all_cases[done:], work, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            while select.select([pipe], [], [], CLOCK_SECONDS)[0] and (line := pipe.readline()):
                what, said = json.loads(line)
                yield Outcome("memory" if "MemoryError" in said and what == "traceback" else what, said)
                done += 1
        os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if done < len(all_cases):
            hang = status in (-signal.SIGKILL, -signal.SIGPROF)
            yield Outcome("hang" if hang else "traceback", f"the process ended with {status}")
            done += 1


def _child(some: Sequence[Case], work: Path, writing: int) -> NoReturn:
    os.setsid()
    for descriptor in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY,) * 2)
    for case in some:
        folder = work / "case"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        found = bad_inputs.outcome(case, folder)
        signal.setitimer(signal.ITIMER_PROF, 0)
        line = json.dumps([found.what, found.said]).encode() + b"\n"
        while line:
            line = line[os.write(writing, line) :]
    os._exit(0)


def finished_run(work: Path) -> tuple[Path, Sequence[str]]:
    """The folder of a tiny run, made in a fork, and how it was asked."""
    from tests.tiny import QUICK

    arguments = ["--recipe", "stars_curriculum", *QUICK]
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        try:
            bad_inputs.run("fit", *arguments, f"out={work / 'made'}")
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 0)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("bench/bad_inputs.py: the run to be edited has failed")
    return work / "made" / "stars_curriculum" / "seed0", arguments


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", action="append", default=[], help="a kind, as the table names it; repeatable")
    parser.add_argument("--each-key", type=int, default=300, help="cases of each key of the schema")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=40, help="faults to print")
    asked = parser.parse_args()
    compose("stars_curriculum")  # imports hydra
    work = Path(tempfile.mkdtemp(prefix="bad-inputs-"))
    found: dict[str, Counter[str]] = {}
    faults: list[tuple[Case, Outcome]] = []
    began = time.monotonic()
    try:
        made = finished_run(work)
        all_cases = [*bad_inputs.cases(), *bad_inputs.run_cases(*made)]
        if asked.only:
            all_cases = [case for case in all_cases if case.kind in asked.only]
        keys = [case for case in all_cases if case.kind == "overrides of each key"]
        left_out = {id(one) for one in random.Random(asked.seed).sample(keys, max(len(keys) - asked.each_key, 0))}
        all_cases = [case for case in all_cases if id(case) not in left_out]
        for case, result in zip(all_cases, outcomes(all_cases, work), strict=True):
            found.setdefault(case.kind, Counter())[result.what] += 1
            if result.what in FAULTS:
                faults.append((case, result))
                last = result.said.strip().splitlines()[-1:] or [""]
                print(f"{result.what}: {case}: {last[0][:160]}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"| kind | inputs | refused | harmless | {' | '.join(FAULTS)} |")
    print("|---|" + "--:|" * (3 + len(FAULTS)))
    total: Counter[str] = sum(found.values(), Counter())
    for kind, counts in [*found.items(), ("**all**", total)]:
        cells = [sum(counts.values()), counts["refused"], counts["taken"], *(counts[fault] for fault in FAULTS)]
        print(f"| {kind} | {' | '.join(map(str, cells))} |")
    print(f"\n{time.monotonic() - began:.0f} seconds.")
    for case, result in faults[: asked.show]:
        print(f"\n{result.what}: {case}\n{result.said.strip()[-1500:]}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
