"""GPUs of this machine, as torch sees them: none where it was built for CPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uni_train.core.errors import UserError

_FILES = Path("/dev")
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Variables without which cuBLAS adds in changing orders; it reads them when it is first used."""


def unused_gpus() -> tuple[str, str] | None:
    """Why torch uses none of this machine's GPUs, and what to do; None where it does, or where it is not to."""
    import torch

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if hidden or torch.cuda.is_available() or not any(_FILES.glob("nvidia[0-9]*")):
        return None
    if torch.version.cuda is None:
        return (
            f"this machine has a GPU, and torch {torch.__version__} is built for CPUs",
            "Install torch for CUDA: https://pytorch.org/get-started/locally",
        )
    return (
        f"this machine has a GPU, and torch {torch.__version__} for CUDA {torch.version.cuda} cannot use it",
        "`nvidia-smi` shows the driver: it may be too old for this CUDA.",
    )


def expect_gpu(accelerator: str) -> None:
    """Raises UserError where `strategy.accelerator` asks for a GPU and torch has none."""
    import torch

    if accelerator == "gpu" and not torch.cuda.is_available():
        why, hint = unused_gpus() or ("this machine has none", "Leave it out to train on CPUs.")
        raise UserError(f"strategy.accelerator=gpu: {why}", hint)


def card_name(accelerator: str, local_rank: int) -> str | None:
    """The model of a process's GPU, such as "NVIDIA H100 80GB HBM3"; None on CPUs."""
    import torch

    return torch.cuda.get_device_name(local_rank) if accelerator != "cpu" and torch.cuda.is_available() else None


@contextmanager
def deterministic_kernels(wanted: bool) -> Iterator[None]:
    """Within it, if `wanted`, torch takes kernels alone that give the same bits each time.

    Raises:
        UserError: an operation has none.
    """
    import torch

    if not wanted:
        yield
        return
    for name, value in DETERMINISTIC.items():
        os.environ.setdefault(name, value)
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)  # fused attention takes its ordered backward pass only without warn_only
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        why = str(error).partition(", but")[0].partition("\n")[0]
        raise UserError(f"strategy.deterministic=true: {why}", "Leave it out, or train on CPUs.") from error
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
