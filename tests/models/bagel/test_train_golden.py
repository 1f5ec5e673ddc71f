"""Training forward and backward of packed samples against the official implementation."""

from __future__ import annotations

import pytest
import torch

from tests.models.bagel.conftest import packed_order
from uni_train.models.bagel.packing import encode, pack

CASES = ("train_packed", "train_packed_shift1", "train_interleaved")


@pytest.mark.golden
@pytest.mark.parametrize("attention", ("eager", "sdpa"))
@pytest.mark.parametrize("name", CASES)
def test_bagel_training_forward_and_backward(name, attention, golden, tiny_model, plan, close):
    case = golden(name)
    model = tiny_model(attention=attention, **({"timestep_shift": 1.0} if name.endswith("shift1") else {}))
    config = model.config
    samples = plan(case.settings, case.tensors, config, case["out.padded_latent"])
    batch = pack([[encode(sample, config) for sample in samples]], config)
    noise = case["in.flow_noise"][None]

    seen = {}
    model.connector.register_forward_hook(lambda m, i, o: seen.update(connector=o, vit_last_hidden=i[0]))
    model.vae2llm.register_forward_hook(lambda m, i, o: seen.update(packed_latent_noisy=i[0][0]))
    layers = model.language_model.model.layers
    layers[0].register_forward_hook(lambda m, i, o: seen.update(input_embeds=i[:2], layer0_hidden=o))
    out = model(batch, noise)

    for key in ("connector", "vit_last_hidden", "packed_latent_noisy"):
        if key in seen:
            close(seen[key], case[f"out.{key}"], what=key)
    for key in ("input_embeds", "layer0_hidden"):
        close(packed_order(batch, *seen[key]), case[f"out.{key}"], what=key)
    close(packed_order(batch, out.hidden_BUD, out.hidden_BGD), case["out.last_hidden_state"], what="hidden")
    close(out.ce, case["out.ce"], what="ce")
    close(out.squared_error, case["out.mse"], what="mse")
    close(out.mse, case["out.mse_per_token"], what="mse per token")
    close(out.ce.mean()[None], case["out.ce_mean"], what="ce mean")
    close(out.mse.mean()[None], case["out.mse_mean"], what="mse mean")
    weighted = (out.ce * out.ce_weight).sum() / out.ce_weight.sum()
    close(weighted[None], case["out.ce_reweighted"], what="ce reweighted")
    loss = case.settings["ce_weight"] * out.ce.mean() + case.settings["mse_weight"] * out.mse.mean()
    close(loss[None], case["out.loss"], what="loss")

    loss.backward()
    parameters = dict(model.named_parameters())
    for key, theirs in case.tensors.items():
        if key.startswith("grad."):
            close(parameters[key.removeprefix("grad.")].grad, theirs, 1e-4, key)
    total = torch.stack([p.grad.norm() for p in parameters.values() if p.grad is not None]).norm()
    close(total[None], case["out.grad_norm"], 1e-4, "total gradient norm")
    largest = max(norm for norm in case.results["grad_norms"].values() if norm is not None)
    for key, norm in case.results["grad_norms"].items():
        grad = parameters[key].grad
        if norm is None:
            assert grad is None or not grad.any(), key
        else:
            assert abs(grad.norm() - norm) <= 1e-4 * max(norm, 1e-3 * largest), key
