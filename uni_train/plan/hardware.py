"""GPUs that a plan may be made for: memory, speed and links, by their data sheets; and this machine's memory.

All rates are peaks without sparsity. The links between nodes are those of the maker's own systems (one network card a
GPU); clouds may have less.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from uni_train.errors import UsageError, did_you_mean

GIB = 2**30
RESERVED = 4 * GIB
"""Not for tensors: the CUDA context, NCCL's buffers, fragments and rounding of PyTorch's allocator. An assumption."""
_CGROUP = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator.

    Attributes:
        memory: bytes. half, single: FLOP a second of dense products in bfloat16, and in float32 (TF32 where it has it).
        inside, outside: bytes a second and direction that one GPU sends to others of its node, and to other nodes.
        bus: bytes a second and direction to the node's own memory (PCIe 5 or 4, 16 lanes).
    """

    name: str
    memory: int
    half: float
    single: float
    inside: float
    outside: float
    bus: float = 64e9

    @property
    def usable(self) -> int:
        """Bytes for tensors."""
        return self.memory - RESERVED


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("h100-80gb", 80 * GIB, 989e12, 494e12, 450e9, 50e9),  # NVIDIA H100 SXM data sheet; DGX H100: 8 x 400 Gb/s
        Gpu("h200-141gb", 141 * 10**9, 989e12, 494e12, 450e9, 50e9),  # NVIDIA H200 SXM data sheet
        Gpu("b200-180gb", 180 * 10**9, 2250e12, 1125e12, 900e9, 50e9),  # DGX B200 data sheet, an eighth of the system
        Gpu("a100-80gb", 80 * GIB, 312e12, 156e12, 300e9, 25e9, 32e9),  # NVIDIA A100 data sheet; DGX A100: 8 x 200 Gb/s
        Gpu("a100-40gb", 40 * GIB, 312e12, 156e12, 300e9, 25e9, 32e9),
        Gpu("l40s-48gb", 48 * GIB, 362e12, 183e12, 32e9, 25e9, 32e9),  # NVIDIA L40S data sheet, PCIe 4 x16
    )
}


def gpu_named(name: str) -> Gpu:
    """Raises UsageError for a name that is not known."""
    if name not in GPUS:
        raise UsageError(f"unknown GPU {name}", did_you_mean(name, list(GPUS), "GPUs"))
    return GPUS[name]


def memory() -> int:
    """Bytes of this machine, or of the container that this process may use."""
    found: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        found = min(found, int(_CGROUP.read_text(encoding="ascii")))
    return found
