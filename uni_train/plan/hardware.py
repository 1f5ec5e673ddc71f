"""GPUs that a plan may be made for: memory, speed and links, by their data sheets.

All rates are peaks without sparsity, accumulated in float32. The links between nodes are those of the maker's own
systems (one network card a GPU); clouds may have less. Cards without such a system have 25 Gb/s Ethernet, an
assumption, and their traffic within a node goes over PCIe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from uni_train.core.errors import UsageError, did_you_mean

GIB = 2**30
RESERVED = 4 * GIB
"""Not for tensors: the CUDA context, NCCL's buffers, fragments and rounding of PyTorch's allocator. An assumption."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator.

    Attributes:
        memory: bytes. half, single: FLOP a second of dense products in bfloat16 (0: it has none), and in float32
            (TF32 where it has it).
        inside, outside: bytes a second and direction that one GPU sends to others of its node, and to other nodes.
        bus: bytes a second and direction to the node's own memory (PCIe 5, 4 or 3, 16 lanes).
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

    @property
    def timed(self) -> bool:
        """Whether more than its memory is known."""
        return self.single > 0


_ETHERNET = 25e9 / 8

GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("h100-80gb", 80 * GIB, 989e12, 494e12, 450e9, 50e9),  # NVIDIA H100 SXM data sheet; DGX H100: 8 x 400 Gb/s
        Gpu("h200-141gb", 141 * 10**9, 989e12, 494e12, 450e9, 50e9),  # NVIDIA H200 SXM data sheet
        Gpu("b200-180gb", 180 * 10**9, 2250e12, 1125e12, 900e9, 50e9),  # DGX B200 data sheet, an eighth of the system
        Gpu("a100-80gb", 80 * GIB, 312e12, 156e12, 300e9, 25e9, 32e9),  # NVIDIA A100 data sheet; DGX A100: 8 x 200 Gb/s
        Gpu("a100-40gb", 40 * GIB, 312e12, 156e12, 300e9, 25e9, 32e9),
        Gpu("l40s-48gb", 48 * GIB, 362e12, 183e12, 32e9, 25e9, 32e9),  # NVIDIA L40S data sheet, PCIe 4 x16
        Gpu("rtx5090-32gb", 32 * GIB, 209.5e12, 104.8e12, 64e9, _ETHERNET, 64e9),  # RTX Blackwell whitepaper, PCIe 5
        Gpu("v100-32gb", 32 * GIB, 0, 15.7e12, 150e9, 12.5e9, 16e9),  # NVIDIA V100 SXM2 data sheet; DGX-1: 4 x 100 Gb/s
        Gpu("rtx4090-24gb", 24 * GIB, 165.2e12, 82.6e12, 32e9, _ETHERNET, 32e9),  # NVIDIA Ada whitepaper, PCIe 4
        Gpu("rtx3090-24gb", 24 * GIB, 71e12, 35.6e12, 32e9, _ETHERNET, 32e9),  # GA102 whitepaper, PCIe 4
        Gpu("a10-24gb", 24 * GIB, 125e12, 62.5e12, 32e9, _ETHERNET, 32e9),  # NVIDIA A10 data sheet, PCIe 4
        Gpu("l4-24gb", 24 * GIB, 121e12, 60e12, 32e9, _ETHERNET, 32e9),  # NVIDIA L4 data sheet, half of sparse
        Gpu("rtx4080-16gb", 16 * GIB, 97.5e12, 48.7e12, 32e9, _ETHERNET, 32e9),  # NVIDIA Ada whitepaper, PCIe 4
        Gpu("a4000-16gb", 16 * GIB, 76.7e12, 38.3e12, 32e9, _ETHERNET, 32e9),  # RTX A4000 data sheet, half of sparse
        Gpu("t4-16gb", 16 * GIB, 0, 8.1e12, 16e9, _ETHERNET, 16e9),  # NVIDIA T4 data sheet, PCIe 3
        Gpu("v100-16gb", 16 * GIB, 0, 15.7e12, 150e9, 12.5e9, 16e9),
    )
}


def gpu_named(name: str) -> Gpu:
    """A GPU by its name, or by its memory in GB ("24", "24gb"). The latter has no known speed.

    Raises:
        UsageError: a name that is not known, several names, or less memory than `RESERVED`.
    """
    if name in GPUS:
        return GPUS[name]
    if "," in name:
        raise UsageError(f"--gpu {name}: a plan is for cards of one kind", "Plan for the smallest: all hold as much.")
    memory = re.fullmatch(r"(\d{1,4})\s*(gb|gib)?", name.lower())
    if memory is None:
        hint = did_you_mean(name, list(GPUS), "GPUs")
        raise UsageError(f"unknown GPU {name}", f"{hint} Of another card give the memory in GB: --gpu 24.")
    if int(memory[1]) * GIB <= RESERVED:
        raise UsageError(f"--gpu {name}: CUDA and its libraries alone take {RESERVED // GIB} GiB", "Give more memory.")
    return Gpu(f"card of {memory[1]} GB", int(memory[1]) * GIB, 0, 0, 0, 0, 0)
