"""Weights to a folder and back, bit for bit. Folders that are none: `tests/models/bagel/test_checkpoint.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from uni_train.config.schema import ModelConfig
from uni_train.core.errors import UserError
from uni_train.models.base import Request
from uni_train.models.load import CONFIG, WEIGHTS, build_model, load_weights, model_config, save_model
from uni_train.models.nano.family import ASSETS
from uni_train.models.nano.nano import Nano
from uni_train.models.weights import Format


def test_a_round_trip_keeps_every_bit(nano: Nano, small_config: ModelConfig, tmp_path: Path) -> None:
    save_model(nano, tmp_path / "model")
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == sorted([CONFIG, WEIGHTS])
    again = build_model(replace(small_config, checkpoint=str(tmp_path / "model")), seed=99)
    assert not again.training
    stored = json.loads((tmp_path / "model" / CONFIG).read_text(encoding="utf-8"))
    assert stored == {"model": "nano", "bagel": nano.bagel.config.to_dict(), "image_size": nano.image_size}
    assert all(torch.equal(again.state_dict()[name], value) for name, value in nano.state_dict().items())
    asked = [Request("a", "Draw 3 apples .", seed=5)]
    assert (again.draw(asked)[0] == nano.draw(asked)[0]).all()
    assert again.think(asked) == nano.think(asked)
    assert model_config(str(tmp_path / "model")).architecture == small_config.architecture  # told by the folder alone


def test_weights_can_be_stored_at_half_the_size(nano: Nano, tmp_path: Path) -> None:
    save_model(nano, tmp_path, Format(torch.bfloat16))
    assert {value.dtype for value in load_file(tmp_path / WEIGHTS).values()} == {torch.bfloat16}
    rounded = {name: value.bfloat16().float() for name, value in nano.state_dict().items()}
    with pytest.raises(UserError, match=r"missing holds no model.safetensors"):
        load_weights(nano, tmp_path / "missing")
    load_weights(nano, tmp_path)
    for name, value in nano.state_dict().items():
        assert value.dtype == torch.float32 and torch.equal(value, rounded[name]), name


def test_random_weights_are_a_function_of_the_seed(small_config: ModelConfig) -> None:
    first, second, other = (build_model(small_config, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_shipped_checkpoint_loads_and_is_small() -> None:
    config = model_config("shipped")
    assert config == model_config("nano") and config.checkpoint == "shipped"
    model = build_model(config)
    assert model.draw([Request("a", "Draw 1 apple .")])[0].shape == (config.architecture.image_size,) * 2 + (3,)
    assert sum(file.stat().st_size for file in ASSETS.iterdir()) <= 6_000_000
