"""bf16-true: the weights are rounded, what is noised is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.models.janus import tiny as janus
from tests.models.qwen_image_edit import tiny as qwen_image_edit
from uni_train.config.compose import compose
from uni_train.models.load import build_model, model_config
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


@pytest.mark.parametrize("published", [janus.published, qwen_image_edit.published])
def test_frequencies_of_rotary_positions_keep_their_digits(published: Callable[[Path], Path], tmp_path: Path) -> None:
    model = build_model(model_config(str(published(tmp_path / "model"))))
    before = {name: value.clone() for name, value in model.named_buffers()}
    assert any("inv_freq" in name for name in before)
    HalfWeights().convert_module(model)
    assert {p.dtype for name, p in model.named_parameters() if not name.startswith("vae.")} == {torch.bfloat16}
    after = dict(model.named_buffers())
    assert all(after[name].dtype == value.dtype and torch.equal(after[name], value) for name, value in before.items())
