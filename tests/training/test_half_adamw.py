"""Weights in bfloat16: small updates are kept, and a run learns what float32 learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.toy_model import ToyBatch, ToyModel, train
from uni_train.training.half_adamw import HalfAdamW


def test_updates_below_the_resolution_add_up() -> None:
    """A thousand steps of 1e-4 from 1: bfloat16 has 0.996 and nothing between."""
    ends = {}
    plain, half, whole = torch.optim.AdamW, torch.bfloat16, torch.float32
    for name, kind, dtype in (("plain", plain, half), ("ours", HalfAdamW, half), ("float32", plain, whole)):
        weight = torch.nn.Parameter(torch.ones(3, dtype=dtype))
        optimizer = kind([weight], lr=1e-4, weight_decay=0.0)
        for _ in range(1000):
            weight.grad = torch.full_like(weight, 0.5)
            optimizer.step()
        ends[name] = weight.detach().float()
    assert torch.equal(ends["plain"], torch.ones(3)), "this is what is wrong with bfloat16 alone"
    torch.testing.assert_close(ends["ours"], ends["float32"], rtol=2**-8, atol=0.0)
    assert float(ends["ours"][0]) < 0.91


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16), lr=st.sampled_from([1e-5, 1e-3, 0.1]), decay=st.sampled_from([0.0, 0.1]),
    scale=st.sampled_from([1e-3, 1.0, 100.0]),
)  # fmt: skip
def test_weight_and_rest_follow_float32(seed: int, lr: float, decay: float, scale: float) -> None:
    random_ = torch.Generator().manual_seed(seed)
    start = (scale * torch.randn(4, 5, generator=random_)).bfloat16()
    dtypes = (torch.bfloat16, torch.float32, torch.float32)
    half, whole, same = (torch.nn.Parameter(start.clone().to(dtype)) for dtype in dtypes)
    given_ = {"lr": lr, "betas": (0.9, 0.95), "weight_decay": decay}
    ours, theirs, plain = (
        kind([weight], **given_) for kind, weight in ((HalfAdamW, half), (torch.optim.AdamW, whole), (HalfAdamW, same))
    )
    for _ in range(20):
        gradient = torch.randn(4, 5, generator=random_).bfloat16()
        half.grad, whole.grad, same.grad = gradient, gradient.float(), gradient.float()
        for optimizer in (ours, theirs, plain):
            optimizer.step()
    torch.testing.assert_close(same, whole, rtol=1e-5, atol=1e-6 * scale)
    assert set(plain.state[same]) == {"step", "exp_avg", "exp_avg_sq"}
    # Sixteen bits, rounded twenty times, of a weight that may have passed near zero on its way.
    reach = float(start.float().abs().max()) + 20 * lr
    torch.testing.assert_close(half.float() + ours.state[half]["rest"], whole.data, rtol=0.0, atol=20 * 2**-16 * reach)


class HalfToy(ToyModel):
    """As our models do: inputs are cast where the weights are."""

    def supervised_loss(self, batch: ToyBatch) -> Any:
        dtype = self.body.weight.dtype
        return super().supervised_loss(replace(batch, x=batch.x.to(dtype), noise=batch.noise.to(dtype)))


def test_a_fit_in_bfloat16_learns_at_small_rates(tmp_path: Path) -> None:
    """That it resumes is among the trainings of test_divergence.py."""
    start, moved = ToyModel().state_dict(), {}
    for precision in ("32-true", "bf16-true"):
        model, _ = train(tmp_path / precision, HalfToy(), updates=40, lr=1e-4, seed=5, precision=precision)
        changes = [(weight.float() - start[name]).abs().mean() for name, weight in model.state_dict().items()]
        moved[precision] = float(sum(changes))
    assert next(model.parameters()).dtype == torch.bfloat16
    assert 0.5 * moved["32-true"] < moved["bf16-true"] < 2 * moved["32-true"]
