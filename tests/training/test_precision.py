"""bf16-true: the weights are rounded, what is noised is not."""

from __future__ import annotations

import random

import torch

from uni_train.config.compose import compose
from uni_train.models.nano import corpus, nano
from uni_train.training.precision import HalfWeights


def test_half_weights_leave_vae_and_batches_in_float32() -> None:
    model = nano.build(compose("nano_pretrain").model, seed=0)
    sources = corpus.sources(noise_draws=2)
    rows = [sources[kind](random.Random(seed)) for seed in range(4) for kind in ("cot_image", "verify")]
    batch = model.collate(rows, seed=0)
    full = model.supervised_loss(batch)

    plugin = HalfWeights()
    plugin.convert_module(model)
    assert {parameter.dtype for parameter in model.bagel.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in model.vae.parameters()} == {torch.float32}
    assert plugin.convert_input(batch) is batch
    with plugin.forward_context(), plugin.tensor_init_context():
        assert torch.get_default_dtype() == torch.float32
        half = model.supervised_loss(batch)
    half.mse_sum.backward()  # type: ignore[no-untyped-call]
    assert half.ce_tokens == full.ce_tokens and half.mse_tokens == full.mse_tokens
    torch.testing.assert_close(half.mse_sum, full.mse_sum, rtol=0.02, atol=0.0)
    torch.testing.assert_close(half.ce_sum, full.ce_sum, rtol=0.02, atol=0.0)
