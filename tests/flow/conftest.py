"""The golden cases of Flow-GRPO, Flow-Factory and DanceGRPO; `UNI_TRAIN_GOLDEN` names another folder with them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

GOLDEN = Path(os.environ.get("UNI_TRAIN_GOLDEN", Path(__file__).parents[1] / "data" / "golden"))


@dataclass(frozen=True)
class Case:
    about: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def settings(self) -> dict[str, Any]:
        return self.about["settings"]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Case]:
    """A case by its name."""

    def load(name: str) -> Case:
        path = GOLDEN / "flow_grpo" / name
        return Case(json.loads(path.with_suffix(".json").read_text()), load_file(path.with_suffix(".safetensors")))

    return load


@pytest.fixture(scope="session")
def close() -> Callable[..., None]:
    """max|a - b| <= tolerance * max|b|, after broadcasting of single elements and rows."""

    def check(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5, what: object = "") -> None:
        ours = ours.detach()
        ours = ours.reshape(theirs.shape) if ours.numel() == theirs.numel() else ours.expand_as(theirs)
        error = float((ours.double() - theirs.double()).abs().max())
        assert error <= tolerance * float(theirs.abs().max()), f"{what}: off by {error:.2g}"

    return check


@pytest.fixture(scope="session")
def gaussian() -> Callable[..., Tensor]:
    def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)

    return draw
