"""The same paths on a GPU of this machine, where there is one: the CPU's numbers, up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cuda import paths
from tests.cuda.__main__ import MOST
from tests.cuda.pretend import Generator
from tests.cuda.test_paths import bounds_of
from uni_train.models.bagel.family import BagelFamily
from uni_train.models.nano.family import NanoFamily

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def on_the_cpu(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.rand` and the like: what a generator draws, it draws on the CPU."""

    def drawn(*args: Any, generator: torch.Generator | None = None, device: Any = None, **kwargs: Any) -> Tensor:
        if generator is None:
            return draw(*args, device=device, **kwargs)
        return draw(*args, generator=generator, **kwargs).to(device or "cpu")

    return drawn


@pytest.mark.parametrize("name", MOST)
def test_a_path_computes_on_a_gpu_as_on_the_cpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    for family in (BagelFamily, NanoFamily):
        monkeypatch.setattr(family, "tf32", False)
    monkeypatch.setattr(torch, "Generator", Generator)
    for draw in ("rand", "randn", "randint"):
        monkeypatch.setattr(torch, draw, on_the_cpu(getattr(torch, draw)))
    found = {}
    for device in ("cpu", "cuda"):
        (tmp_path / device).mkdir()
        found[device] = paths.PATHS[name](device, tmp_path / device)
    apart = {key: paths.apart(value, found["cpu"][key]) for key, value in found["cuda"].items() if value}
    print(name, apart)
    assert {key: off for key, off in apart.items() if not off <= bounds_of(name, key)} == {}
