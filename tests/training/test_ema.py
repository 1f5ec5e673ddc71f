"""The averaged weights, by their definition; only what is trained; also in half precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from uni_train.training.averages import put
from uni_train.training.ema import Ema


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_average_is_that_of_the_definition(dtype, offload):
    model = nn.Linear(3, 2).to(dtype)
    model.bias.requires_grad_(False)
    ema, expected = Ema(0.999, offload=offload), None
    for step in range(50):
        with torch.no_grad():
            model.weight.copy_(torch.randn(2, 3, generator=torch.Generator().manual_seed(step)))
        ema.update(model)
        now = model.weight.detach().double()
        expected = now if expected is None else 0.999 * expected + 0.001 * now
    assert ema.averages.keys() == {"weight"} and ema.averages["weight"].dtype == torch.float32
    torch.testing.assert_close(ema.averages["weight"].double(), expected, rtol=1e-5, atol=1e-6)
    last = model.weight.detach().clone()
    with ema.averaged(model):
        assert torch.equal(model.weight, ema.averages["weight"].to(dtype)) and not torch.equal(model.weight, last)
    assert torch.equal(model.weight, last)
    other = Ema(0.999)
    other.load_state_dict(ema.state_dict())
    put(model, other.averages)
    assert torch.equal(model.weight, ema.averages["weight"].to(dtype))
