"""Adapters: they change nothing at first, are trained alone, merge into the weights, and peft reads what is stored."""

from __future__ import annotations

import pytest
import torch

from tests.models.bagel.conftest import golden_folder, tiny_config, tiny_model  # noqa: F401  (fixtures)
from tests.models.bagel.test_examples import KINDS, sums
from tests.models.bagel.test_unified import unified, vae  # noqa: F401
from uni_train.config.schema import LoraConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.training.lora import adapted, count_adapters, save_adapters
from uni_train.training.trained import select_parameters

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
