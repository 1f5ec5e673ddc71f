"""Weights that stay in their files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from uni_train.models.weights import Weights, fill, mapped, write_state


def test_mapped_weights_are_private_views_of_the_files_dtype(tmp_path: Path) -> None:
    stored, model = nn.Linear(3, 2), nn.Linear(3, 2).bfloat16()
    write_state(stored.state_dict(), tmp_path, "model")
    weights = Weights([tmp_path / "model.safetensors"])
    kept = model.weight
    with mapped():
        fill(model, weights.read)
    assert model.weight is kept and model.weight.dtype == torch.float32
    spans = [
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line
    ]
    assert any(int(first, 16) <= model.weight.data_ptr() < int(last, 16) for first, last in spans)
    assert torch.equal(model.weight, stored.weight) and torch.equal(model.bias, stored.bias)
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(weights.read("weight"), stored.weight)
