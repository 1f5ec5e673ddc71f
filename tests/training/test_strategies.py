"""What strategies ask of a model, and what is refused. Trainings under them: test_ranks.py."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.driver import GRPO
from tests.training.keys import changed
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.models.load import build_model
from uni_train.training.flow_grpo.trainer import fit_flow_grpo


def test_a_bagel_in_step_computes_the_same_and_uses_all_its_weights() -> None:
    model = build_model(compose("stars_curriculum").model)
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0)
    sources = model.replay_rows(())
    assert sources is not None
    make = sources["cot_text"][1]  # texts alone: no pictures are shown or drawn
    texts = [make(random.Random(i)) for i in range(2)]
    batch = model.collate(texts, 0)
    plain = model.supervised_loss(batch)
    in_step = model.supervised_loss(batch, passes=model.passes(batch) + 2)
    assert in_step.ce_sum.item() == plain.ce_sum.item() and in_step.ce_tokens == plain.ce_tokens > 0
    trained = {name: weight for name, weight in model.bagel.named_parameters() if weight.requires_grad}
    expected = torch.autograd.grad(plain.ce_sum + plain.mse_sum, list(trained.values()), allow_unused=True)
    found = torch.autograd.grad(in_step.ce_sum + in_step.mse_sum, list(trained.values()))
    unused = [name for name, one in zip(trained, expected, strict=True) if one is None]
    assert any("moe_gen" in name for name in unused) and any("vit_model" in name for name in unused)
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(other, torch.zeros_like(other) if one is None else one)

    asked: list[str] = []
    for name, module in model.bagel.named_modules():
        if list(module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda module, args, name=name: asked.append(name))
    orders = []
    for kind in ("cot_text", "verify", "text_to_image", "cot_image"):
        batch = model.collate([sources[kind][1](random.Random(i)) for i in range(2)], 0)
        model.supervised_loss(batch, passes=3)
        orders.append(list(asked))
        asked.clear()
    assert orders[0] and all(order == orders[0] for order in orders)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"variant": "diffusion_nft", "kl": 0.0}, "variant=diffusion_nft"), ({}, "objective.kl with trained=all")],
)
def test_what_needs_a_second_set_of_weights_is_refused_with_the_strategies_that_can(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=f"strategy=fsdp2 cannot do {said}") as error:
        fit_flow_grpo(None, None, changed(GRPO, kind="fsdp2", **changes), tmp_path)  # type: ignore[arg-type]
    assert "deepspeed_zero2" in (error.value.hint or "")


@pytest.mark.parametrize(("kind", "key"), [("fsdp2", "offload_optimizer"), ("deepspeed_zero2", "offload_weights")])
def test_offloading_that_a_strategy_does_not_have_is_refused(kind: str, key: str) -> None:
    with pytest.raises(UsageError, match=f"{key} has no meaning for {kind}"):
        compose("stars_curriculum", [f"strategy={kind}", f"strategy.{key}=true"])
    with pytest.raises(UsageError, match="replicas has no meaning for ddp"):
        compose("stars_curriculum", ["strategy=ddp", "strategy.replicas=2"])
    with pytest.raises(UsageError, match="replicas=3 does not divide 8 devices") as error:
        compose("stars_curriculum", ["strategy=fsdp2", "strategy.devices=8", "strategy.replicas=3"])
    assert error.value.hint == "The nearest number is strategy.replicas=2."
    config = compose("stars_curriculum", ["strategy=deepspeed_zero3", f"strategy.{key}=true"]).strategy
    assert (config.kind, config.devices, getattr(config, key)) == ("deepspeed_zero3", 1, True)
