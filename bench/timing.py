"""What speed benchmarks share: paired times, memory of this process, and the machine in a line."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

MB = 2**20


@dataclass(frozen=True, slots=True)
class Moment:
    """Wall and CPU seconds; the CPU's (of all threads) are the ones to compare on a machine with other work."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.perf_counter(), time.process_time())

    def since(self, before: Moment) -> Moment:
        return Moment(self.wall - before.wall, self.cpu - before.cpu)

    @classmethod
    def of_python(cls, arguments: Sequence[str], folder: str | Path, **environment: str) -> Moment:
        """Of a Python process with these arguments and its children. Raises CalledProcessError where it fails."""
        before, children = cls.now(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command, variables = [sys.executable, *arguments], os.environ | environment
        subprocess.run(command, capture_output=True, check=True, cwd=folder, env=variables)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
        return cls(cls.now().since(before).wall, cpu)

    @classmethod
    def median(cls, moments: list[Moment]) -> Moment:
        return cls(*(statistics.median(getattr(one, name) for one in moments) for name in ("wall", "cpu")))


def taken(repeats: int, runs: Mapping[str, Callable[[], object]]) -> dict[str, list[Moment]]:
    """What each took, in turn so that a slow moment meets all alike; a first round does not count."""
    found: dict[str, list[Moment]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            before = Moment.now()
            run()
            if repeat:
                found[name].append(Moment.now().since(before))
    return found


def interleaved(repeats: int, runs: Mapping[str, Callable[[], object]], clock: str = "wall") -> dict[str, float]:
    """Median seconds of each, by "wall" or "cpu"."""
    return {name: getattr(Moment.median(some), clock) for name, some in taken(repeats, runs).items()}


def resident(key: str) -> int:
    """Bytes, of /proc/self/status ("VmRSS", "VmHWM"). Raises OSError where this is not Linux."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024


def forget_peak() -> int:
    """Give memory back and forget the peak; bytes that stay. Raises OSError or AttributeError where this is not
    Linux."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


def peak_memory(run: Callable[[], object]) -> float | None:
    """MB that the process holds at most during `run`, beyond those before; None where Linux does not tell."""
    try:
        before = forget_peak()
    except (OSError, AttributeError):
        run()
        return None
    run()
    return (resident("VmHWM") - before) / MB


def family_memory(pid: int) -> int:
    """Bytes of a process and all that it has started, each shared page counted in parts (PSS)."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += member.memory_full_info().pss
    return total


def forked(work: Callable[[], Any]) -> Callable[[], Any]:
    """`work` in a fork of this process, started now; the call waits for its result. Raises SystemExit: it failed."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(work()))
    process.start()
    theirs.close()

    def result() -> Any:
        try:
            return ours.recv()
        except EOFError:
            raise SystemExit("a process of this benchmark failed: see its traceback above") from None
        finally:
            process.join()

    return result


def processor() -> str:
    """The CPU's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown CPU"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def machine() -> str:
    """Processor, cores, load, threads and versions."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    about = f"{platform.machine()}, {processor()}: {cores} cores, {torch.get_num_threads()} thread(s)"
    return f"{about}, load {os.getloadavg()[0]:.1f}; torch {torch.__version__}, Python {platform.python_version()}"
