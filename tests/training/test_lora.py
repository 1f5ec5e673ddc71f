"""Adapters: they change nothing at first, are trained alone, merge into the weights, and peft reads what is stored."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.models.bagel.conftest import golden_folder, tiny_config, tiny_model  # noqa: F401  (fixtures)
from tests.models.bagel.test_examples import KINDS, sums
from tests.models.bagel.test_unified import unified, vae  # noqa: F401
from uni_train.config.compose import compose
from uni_train.config.schema import LoraConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.models.quantised import _stored
from uni_train.plan.ready import ready
from uni_train.training.lora import adapted, count_adapters, save_adapters
from uni_train.training.trained import select_parameters


class Multiplied(TorchDispatchMode):
    """Counts the tensors with as many numbers as `shape` that are multiplied by a number."""

    def __init__(self, shape):
        super().__init__()
        self.size, self.count = math.prod(shape), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        scaled = func._overloadpacket is torch.ops.aten.mul and not getattr(args[1], "ndim", 0)
        self.count += scaled and args[0].numel() == self.size
        return func(*args, **(kwargs or {}))


SETTINGS = LoraConfig(rank=3, alpha=6.0, targets="both")


@pytest.fixture
def model(tiny_model, vae):  # noqa: F811
    return unified(tiny_model(), vae)


def shaken(model) -> set[str]:
    """Give the adapters numbers; returns the names that are trained."""
    names = set(select_parameters(model, "lora"))
    with torch.no_grad():
        for i, (name, parameter) in enumerate(model.named_parameters()):
            if name in names:
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)) * 0.1)
    return names


def test_adapters_start_at_nothing_merge_and_are_gone(model):
    batches = model.collate(KINDS, 0)
    names, trainable = list(model.state_dict()), [p.requires_grad for p in model.parameters()]
    before, expected = sums(model, batches), count_adapters(model, SETTINGS)
    with adapted(model, SETTINGS, seed=1):
        assert sums(model, batches) == before
        trained = shaken(model)
        assert sum(model.get_parameter(name).numel() for name in trained) == expected
        during = sums(model, batches)
    assert during[0] != pytest.approx(before[0], rel=1e-3) and during[2] != pytest.approx(before[2], rel=1e-3)
    assert list(model.state_dict()) == names and [p.requires_grad for p in model.parameters()] == trainable
    assert sums(model, batches) == pytest.approx(during, rel=1e-4)


@pytest.mark.parametrize(("targets", "kind"), [("generation", True), ("understanding", False)])
def test_targets_name_one_of_the_two_sets_of_weights(model, targets, kind):
    with adapted(model, LoraConfig(rank=2, targets=targets), seed=1):
        names = select_parameters(model, "lora")
    assert all(("_moe_gen" in name) == kind and "language_model" in name for name in names)
    layers = model.bagel.config.llm.num_hidden_layers
    assert len(names) == layers * 7 * 2, "q, k, v, o, gate, up, down; A and B"


def test_peft_reads_the_stored_adapters(model, tiny_model, vae, tmp_path):  # noqa: F811
    from peft import PeftModel

    batches = model.collate(KINDS, 0)
    with adapted(model, SETTINGS, seed=1):
        shaken(model)
        save_adapters(model, SETTINGS, tmp_path)
    base = tiny_model()
    PeftModel.from_pretrained(base, str(tmp_path))
    assert sums(unified(base, vae), batches) == pytest.approx(sums(model, batches), rel=1e-4)
    assert {path.name for path in tmp_path.iterdir()} == {"adapter_model.safetensors", "adapter_config.json"}


def test_adapters_that_learned_nothing_and_targets_that_match_nothing_are_refused(model, tmp_path):
    with adapted(model, SETTINGS, seed=1), pytest.raises(UserError, match="every lora_B is 0"):
        save_adapters(model, SETTINGS, tmp_path)
    nothing = adapted(model, LoraConfig(targets="re:nothing"), 0)
    with pytest.raises(UsageError, match=r"lora\.targets=re:nothing: no linear layer"), nothing:
        pass


def test_frozen_parts_are_left_out(model):
    every = set(select_parameters(model, "all"))
    frozen = set(select_parameters(model, "all", ["vit", "connector", "understanding"]))
    assert frozen == set(select_parameters(model, "moe_gen"))
    assert {name.split(".")[1] for name in every - frozen} == {"vit_model", "connector", "language_model"}
    with pytest.raises(UsageError, match="frozen=generation"):
        select_parameters(model, "moe_gen", ["generation"])


def test_a_plan_counts_the_flop_of_adapters(monkeypatch):
    from peft.tuners.lora import Linear

    from uni_train.training.added_product import AddedProduct

    def flops() -> float:
        return ready(compose("sft_nano", ["trained=lora", "lora.rank=64"]), 1).traced(0)[0].flops

    ours = flops()
    monkeypatch.setattr(AddedProduct, "forward", Linear.forward)
    assert ours == pytest.approx(flops(), rel=1e-3)


@pytest.mark.parametrize("kind", ("float32", "bfloat16", "autocast", "quantised", "no gradients", "turned off"))
def test_an_adapted_layer_computes_what_pefts_does(kind):
    from peft import LoraConfig as PeftConfig
    from peft.tuners.lora import Linear

    from uni_train.training.added_product import AddedProduct

    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    x = torch.randn(2, 5, 64, dtype=dtype, generator=torch.Generator().manual_seed(0))
    results = []
    for layer_class in (Linear, AddedProduct):
        torch.manual_seed(1)
        base = torch.nn.Linear(64, 128).to(dtype).requires_grad_(False)
        if kind == "quantised":
            base.weight = torch.nn.Parameter(_stored(base.weight.detach(), "nf4"), requires_grad=False)
        layer = layer_class(base, "default", config=PeftConfig(), r=3, lora_alpha=7).to(dtype)
        torch.nn.init.normal_(layer.lora_B["default"].weight)
        layer._disable_adapters = kind == "turned off"
        shown = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"), Multiplied((2 * 5, 128)) as multiplied:
            if kind == "no gradients":
                with torch.no_grad():
                    results.append([layer(shown)])
                continue
            y = layer(shown)
            y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape))
        assert multiplied.count == (2 if layer_class is Linear and kind != "turned off" else 0)
        adapter = [layer.lora_A["default"].weight, layer.lora_B["default"].weight]
        results.append([y, shown.grad, *(weight.grad for weight in adapter if weight.grad is not None)])
    assert len(results[0]) == {"no gradients": 1, "turned off": 2}.get(kind, 4)
    shapes = [(64,), (0, 64), (2, 0, 64), (2, 3, 4, 64)]
    assert [layer(torch.zeros(shape, dtype=dtype)).shape for shape in shapes] == [(*s[:-1], 128) for s in shapes]
    tolerance = 1e-5 if dtype == torch.float32 and kind != "autocast" else 2e-2
    for theirs, ours in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert (ours - theirs).float().norm() <= tolerance * theirs.float().norm()
