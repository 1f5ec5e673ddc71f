"""Getting the most out of a few CPU cores: how many threads, and memory that is kept instead of given back."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Literal

from uni_train.distributed.devices import unused_gpus

_CGROUP = Path("/sys/fs/cgroup/cpu.max")
_MEMORY = Path("/sys/fs/cgroup/memory.max")
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def prepare_cpu(threads: int | Literal["auto"], processes: int = 1) -> int:
    """Set PyTorch's threads and glibc's memory thresholds for this process; returns the number of threads.

    "auto" takes its part of the cores that `processes` on this machine may use, and at most OMP_NUM_THREADS. It takes
    at most four: nano's matrices are too small for more. The first process where torch cannot use the GPUs says so.
    """
    import torch

    if os.environ.get("LOCAL_RANK", "0") == "0" and (unused := unused_gpus()) is not None:
        print("note: {}, so it computes on CPUs. {}".format(*unused), file=sys.stderr)

    chosen = max(min(_cores() // processes, usable_cores(), 4), 1) if threads == "auto" else threads
    torch.set_num_threads(chosen)
    keep_memory()
    return chosen


def keep_memory() -> None:
    """Let glibc keep freed blocks of a few MB for the next tensor, instead of returning them to the system.

    Otherwise every tensor above 128 KiB costs fresh pages; bench/nano.py prints what that is worth on a machine. Does
    nothing where the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        libc.mallopt(_M_TOP_PAD, 64 << 20)
    except (OSError, AttributeError):
        return


def usable_cores() -> int:
    """Cores that processes of this machine may use together: at most OMP_NUM_THREADS, where it is set."""
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return min(_cores(), int(limit)) if limit.isdigit() and int(limit) else _cores()


def _cores() -> int:
    """Those of this process, or of its container where that has fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CGROUP.read_text(encoding="ascii").split()
        return max(min(cores, int(quota) // int(period)), 1)
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def memory() -> int:
    """Bytes of this machine, or of the container that this process may use."""
    available: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        available = min(available, int(_MEMORY.read_text(encoding="ascii")))
    return available
