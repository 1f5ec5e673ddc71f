"""Moments of 8 bits: close to whole ones, stored and read back bit for bit, as small as planned."""

from __future__ import annotations

import pytest
import torch

from uni_train.config.schema import OptimizerConfig
from uni_train.training.checkpoint_io import load_folder, save_folder
from uni_train.training.low_bit_adamw import adamw_8bit, moments

SETTINGS = OptimizerConfig(lr=1e-2, state="8bit")


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torchao compiles its step, which takes longer than these tests."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)


def weights(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in ((64, 128), (10,))]


def learn(parameters, optimizer, steps, first=0):
    for step in range(first, first + steps):
        torch.manual_seed(step)
        for parameter in parameters:
            parameter.grad = parameter.detach() + 0.1 * torch.randn_like(parameter)
        optimizer.step()


def test_it_learns_as_whole_moments_do():
    ours, theirs, start = weights(), weights(), weights()
    learn(ours, adamw_8bit([{"params": ours, "weight_decay": 0.0}], SETTINGS, half=False), 30)
    learn(theirs, torch.optim.AdamW(theirs, lr=1e-2, betas=SETTINGS.betas, eps=SETTINGS.eps, weight_decay=0.0), 30)
    for one, other, before in zip(ours, theirs, start, strict=True):
        assert (one - other).norm() < 0.03 * (other - before).norm()


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_a_stored_state_continues_bit_for_bit(tmp_path, dtype):
    straight, stopped = weights(dtype), weights(dtype)
    half = dtype == torch.bfloat16
    learn(straight, adamw_8bit([{"params": straight, "weight_decay": 0.1}], SETTINGS, half), 6)
    first = adamw_8bit([{"params": stopped, "weight_decay": 0.1}], SETTINGS, half)
    learn(stopped, first, 3)
    save_folder({"optimizer": first.state_dict()}, tmp_path / "step=3")
    second = adamw_8bit([{"params": stopped, "weight_decay": 0.1}], SETTINGS, half)
    second.load_state_dict(load_folder(tmp_path / "step=3")["optimizer"])
    learn(stopped, second, 3, first=3)
    assert all(torch.equal(a, b) for a, b in zip(straight, stopped, strict=True))


def test_its_size_is_what_plan_counts():
    (large, small) = parameters = weights()
    optimizer = adamw_8bit([{"params": parameters, "weight_decay": 0.0}], SETTINGS, half=False)
    learn(parameters, optimizer, 1)
    held = [optimizer.state[large][name] for name in ("exp_avg", "exp_avg_sq")]
    assert sum(one.codes.nbytes + one.scale.nbytes for one in held) == sum(one.nbytes for one in moments(large))
    assert sum(optimizer.state[small][name].nbytes for name in ("exp_avg", "exp_avg_sq")) == 2 * small.nbytes
