"""Quantised decoders: what is stored, what is computed, what adapters on top learn, and what is left behind."""

from __future__ import annotations

import sys
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.models.bagel.conftest import golden_folder, tiny_config, tiny_model, vae  # noqa: F401  (fixtures)
from tests.models.bagel.published import published
from tests.models.bagel.test_examples import KINDS, sums
from tests.models.bagel.test_unified import unified
from tests.models.diffusers import tiny
from tests.models.qwen_image_edit.conftest import build, config_of, folder, picture  # noqa: F401
from uni_train.config.schema import LoraConfig
from uni_train.core.errors import UserError
from uni_train.core.files import sha256_of
from uni_train.models.base import Request
from uni_train.models.load import build_model, model_config
from uni_train.models.quantised import decoder_layers, is_quantised, plain, quantise, stored_bytes
from uni_train.models.weights import Weights, write
from uni_train.training.lora import adapted
from uni_train.training.trained import select_parameters

FORMS = ("nf4", "int8", "fp8")
OFF = {"nf4": 0.12, "int8": 0.006, "fp8": 0.03}  # of the length of a weight of normal numbers


@pytest.fixture
def model(tiny_model, vae):  # noqa: F811
    return unified(tiny_model(), vae)


def held(weight) -> int:
    """Bytes of the tensors that torchao keeps, without nf4's table of 16 numbers and its mean."""
    names = [name for name in weight.__tensor_flatten__()[0] if name not in ("nf4", "scaler_mean")]
    return sum(getattr(weight, name).nbytes for name in names if isinstance(getattr(weight, name), torch.Tensor))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("form", FORMS)
def test_products_and_gradients_are_those_of_the_dequantised_weights(form, dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 128)).to(dtype)
    for name in ("layers", "model", "language_model"):
        model = torch.nn.ModuleDict({name: torch.nn.ModuleList([model]) if name == "layers" else model})
    ((_, layer),) = decoder_layers(model)
    before, expected = layer.weight.detach().clone(), stored_bytes(layer, form)
    quantise(model, form)
    assert is_quantised(layer.weight) and not layer.weight.requires_grad and held(layer.weight) == expected
    whole = plain(layer.weight)
    assert whole.dtype == dtype and (whole - before).float().norm() < OFF[form] * before.float().norm()
    x = torch.randn(5, 256, dtype=dtype, requires_grad=True)
    layer(x).square().sum().backward()
    other = x.detach().float().requires_grad_()
    y = F.linear(other, whole.float(), layer.bias.float())
    y.square().sum().backward()
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(layer(x).float(), y, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(x.grad.float(), other.grad, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_bagel_is_stored_as_plain_weights_that_adapters_are_merged_into(model, form, tmp_path):
    batches = model.collate(KINDS, 0)
    quantise(model, form)
    state = model.state_dict()
    layer = next(name for name, value in state.items() if is_quantised(value))
    write(tmp_path / "a", {layer: (state[layer].dtype, tuple(state[layer].shape))}, lambda name: state[name].detach())
    assert torch.equal(Weights([tmp_path / "a"]).read(layer), plain(state[layer]))
    with adapted(model, LoraConfig(rank=3, alpha=6.0), seed=1):
        names = select_parameters(model, "lora")
        trained = [model.get_parameter(name) for name in names]
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in names)
        optimizer = torch.optim.AdamW(trained, lr=1e-2)
        losses = []
        for _ in range(4):
            loss = model.supervised_loss(batches)
            total = loss.ce_sum / loss.ce_tokens + loss.mse_sum / loss.mse_tokens
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            losses.append(total.item())
        assert losses[-1] < losses[0] and all(weight.grad.isfinite().all() for weight in trained)
        during = sums(model, batches)
    assert not any(map(is_quantised, model.parameters()))
    assert sums(model, batches) == pytest.approx(during, rel=1e-3)  # what was trained is what is stored


def test_both_decoders_of_an_editor_are_quantised_and_draw(build):  # noqa: F811
    editor = build()
    learns = {name: weight.requires_grad for name, weight in editor.named_parameters()}
    layers = dict(decoder_layers(editor))
    assert {name.split(".")[0] for name in layers} == {"transformer", "text_encoder"}
    asked = [Request("r", "make it red", (picture(1),))]
    (plainly,) = editor.draw(asked)
    quantise(editor, "int8")
    assert all(is_quantised(layer.weight) for layer in layers.values())
    (drawn,) = editor.draw(asked)
    assert drawn.shape == plainly.shape and np.abs(drawn.astype(int) - plainly).mean() < 8
    with adapted(editor, LoraConfig(rank=2), seed=1):
        assert all("lora_" in name for name in select_parameters(editor, "lora"))
    assert {name: weight.requires_grad for name, weight in editor.named_parameters()} == learns


def drawn(model, *images) -> np.ndarray:
    return model.draw([Request("r", "a red boat", images, size=None if images else (32, 32))])[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_is_quantised_as_training_does_it_and_left_as_it_is(form, golden_folder, tmp_path):  # noqa: F811
    folder = published(golden_folder, tmp_path / "BAGEL")  # noqa: F811
    files = {file: sha256_of(file) for file in folder.iterdir()}
    loaded = build_model(model_config(str(folder), form))
    ours, trained = dict(loaded.named_parameters()), quantise(build_model(model_config(str(folder))), form)
    for name, weight in trained.named_parameters():
        assert is_quantised(ours[name]) == is_quantised(weight)
        assert torch.equal(plain(ours[name]), plain(weight)) and ours[name].requires_grad == weight.requires_grad
    assert np.array_equal(drawn(loaded), drawn(trained))
    assert {file: sha256_of(file) for file in folder.iterdir()} == files


def test_one_layer_at_a_time_is_there_unquantised(golden_folder, tmp_path, monkeypatch):  # noqa: F811
    folder = published(golden_folder, tmp_path / "BAGEL")  # noqa: F811
    seen: list[weakref.ref] = []
    names = {f"{name}.weight" for name, _ in decoder_layers(build_model(model_config(str(folder))).bagel)}
    read = Weights.read

    def watched(self, name):
        assert [one() for one in seen if one() is not None] == []
        value = read(self, name)
        if name in names:
            seen.append(weakref.ref(value))
        return value

    monkeypatch.setattr(Weights, "read", watched)
    build_model(model_config(str(folder), "int8"))
    assert len(seen) == len(names) > 10


@pytest.mark.parametrize("name", ["flux", "qwen_image"])
def test_blocks_of_a_pipeline_of_diffusers_are_quantised(name, tmp_path):
    tiny.pipeline(name).save_pretrained(tmp_path / name)
    config = model_config(str(tmp_path / name), "int8")
    model = build_model(replace(config, sampling=replace(config.sampling, steps=2)))
    blocks = {name.split(".")[1] for name, layer in decoder_layers(model) if is_quantised(layer.weight)}
    assert {"flux": {"transformer_blocks", "single_transformer_blocks"}}.get(name, {"transformer_blocks"}) <= blocks
    assert drawn(model).any()


def test_an_editor_is_quantised_as_it_is_read(folder, build):  # noqa: F811
    loaded = build_model(replace(config_of(folder), weights="int8"))
    assert np.array_equal(drawn(loaded, picture(1)), drawn(quantise(build(), "int8"), picture(1)))


def test_what_cannot_be_quantised_says_so(monkeypatch, model):
    with pytest.raises(UserError, match="no decoder"):
        quantise(torch.nn.Linear(4, 4), "int8")
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(UserError, match="needs torchao") as caught:
        quantise(model, "nf4")
    assert ".[quantized]" in caught.value.hint
