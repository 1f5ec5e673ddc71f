"""Every strategy on two ranks against one device, resuming under another one, half precision, offloading, a full disk.

All checks are runs of one pair of processes (strategies_driver.py), which take longer to start than to run.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.once import once
from tests.training.flow_grpo.test_ranks import GRPO, epochs
from tests.training.keys import changed
from tests.training.strategies_driver import Stack, fit, grpo, start
from uni_train.config.compose import compose
from uni_train.errors import UsageError
from uni_train.models.load import build_model
from uni_train.training.flow_grpo.trainer import fit_flow_grpo
from uni_train.training.metric_log import read_metrics

STRATEGIES = ("ddp", "deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3", "fsdp2")
HALF = "precision=bf16-true"
COMMANDS = [
    *(f"fit:{name}:strategy={name},updates=6,ema=0.9" for name in STRATEGIES),
    # One run, which goes on under another strategy after every second update.
    "fit:chain:strategy=deepspeed_zero3,updates=2,ema=0.9",
    "fit:chain:strategy=fsdp2,updates=4,ema=0.9",
    "fit:chain:strategy=deepspeed_zero2,updates=5,ema=0.9",
    f"fit:half:strategy=deepspeed_zero2,updates=2,{HALF}",
    f"fit:half:strategy=deepspeed_zero3,updates=4,{HALF}",
    f"fit:half:strategy=fsdp2,updates=6,{HALF}",
    "fit:mixed:strategy=deepspeed_zero3,updates=2,precision=bf16-mixed",
    "fit:offloaded:strategy=deepspeed_zero3,updates=2,offload_optimizer=1,offload_weights=1",
    "grpo:deepspeed_zero3-grpo:strategy=deepspeed_zero3,epochs=2",
    "grpo:adapters:strategy=fsdp2,epochs=1,trained=lora,kl=0.01",
    "full:full:strategy=deepspeed_zero2,updates=6",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("deepspeed")

    def make(out: Path) -> None:
        for ended in start(2, out, COMMANDS):
            assert ended.returncode == 0, ended.stdout
            assert "disk is full" in ended.stdout or "File too large" in ended.stdout, ended.stdout

    return once(tmp_path_factory, "strategies", make)[0]


def lines(out: Path) -> list[dict[str, Any]]:
    return read_metrics(out / "metrics.jsonl")


def close(one: list[dict[str, Any]], other: list[dict[str, Any]], rel: float) -> None:
    assert len(one) == len(other)
    for first, second in zip(one, other, strict=True):
        assert list(first) == list(second)
        for name, value in first.items():
            assert second[name] == pytest.approx(value, rel=rel, abs=1e-7), name


def same(out: Path, model: torch.nn.Module, most: float) -> None:
    """The weights of all ranks are whole and those of `model`."""
    for rank in (0, 1):
        found = load_file(out / f"final-{rank}.safetensors")
        for name, value in model.state_dict().items():
            assert found[name].shape == value.shape and found[name].dtype == value.dtype
            assert float((found[name].float() - value.float()).abs().max()) <= most, name


@pytest.mark.multinode
@pytest.mark.slow
def test_two_ranks_train_as_one_device_does_and_continue_under_any_strategy(place: Path, tmp_path: Path) -> None:
    alone = fit(tmp_path / "alone", updates=6, ema=0.9)
    fresh = Stack().state_dict()
    assert float((alone.head.weight.detach() - fresh["head.weight"]).abs().max()) > 1e-3
    for name in STRATEGIES:
        close(lines(tmp_path / "alone"), lines(place / name), 1e-5)
        same(place / name, alone, 1e-6)
    last = fit(place / "chain", updates=6, ema=0.9)  # the last update on one device
    close(lines(tmp_path / "alone"), lines(place / "chain"), 1e-5)
    for name, value in alone.state_dict().items():
        assert float((last.state_dict()[name] - value).abs().max()) <= 1e-6, name


@pytest.mark.multinode
@pytest.mark.slow
def test_half_precision_and_offloading_under_sharing_strategies(place: Path, tmp_path: Path) -> None:
    half = fit(tmp_path / "half", updates=6, precision="bf16-true")
    close(lines(tmp_path / "half"), lines(place / "half"), 0.02)
    same(place / "half", half, 0.02)
    assert half.head.weight.dtype == torch.bfloat16 and half.vae.weight.dtype == torch.float32
    fit(tmp_path / "mixed", updates=2, precision="bf16-mixed")
    close(lines(tmp_path / "mixed"), lines(place / "mixed"), 0.02)
    whole = fit(tmp_path / "offloaded", updates=2)
    close(lines(tmp_path / "offloaded"), lines(place / "offloaded"), 1e-5)
    same(place / "offloaded", whole, 1e-6)


@pytest.mark.multinode
@pytest.mark.slow
def test_reinforcement_with_weights_shared_out_draws_what_one_device_draws(place: Path, tmp_path: Path) -> None:
    alone = grpo(tmp_path, epochs=2)
    out = place / "deepspeed_zero3-grpo"
    # The same pictures, bit for bit, before weights have moved; means over ranks are summed in another order.
    close(epochs(tmp_path)[:1], epochs(out)[:1], 1e-12)
    for first, second in zip(epochs(tmp_path), epochs(out), strict=True):
        assert second["reward"] == pytest.approx(first["reward"], rel=1e-5)
    same(out, alone, 1e-6)
    adapters = grpo(tmp_path / "adapters", epochs=1, trained="lora", kl=0.01)
    close(epochs(tmp_path / "adapters"), epochs(place / "adapters"), 1e-5)
    same(place / "adapters", adapters, 1e-6)
    # Stopped after the first epoch on two ranks, it continues on one.
    lost = [path for path in (out / "checkpoints").iterdir() if path.name > "step=00000002"]
    for path in lost:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    again = grpo(out, epochs=2)
    for name, value in alone.state_dict().items():
        assert float((again.state_dict()[name] - value).abs().max()) <= 1e-6, name


@pytest.mark.multinode
@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_ends_all_ranks_and_leaves_none(place: Path) -> None:
    assert list((place / "full" / "checkpoints").iterdir()) == []


@pytest.mark.slow
def test_one_device_alone_may_have_any_strategy_again_and_again(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    alone = fit(tmp_path / "alone", updates=2).state_dict()
    try:
        for place in ("deepspeed_zero2", "fsdp2", "deepspeed_zero3", "deepspeed_zero2-again"):
            found = fit(tmp_path / place, updates=2, strategy=place.removesuffix("-again")).state_dict()
            for name, value in alone.items():
                assert float((found[name] - value).abs().max()) <= 1e-6, (place, name)
    finally:
        torch.distributed.destroy_process_group()


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
    ("changes", "kl", "said"),
    [({"variant": "diffusion_nft"}, 0.0, "variant=diffusion_nft"), ({}, 0.01, "objective.kl with trained=all")],
)
def test_what_needs_a_second_set_of_weights_is_refused_with_the_strategies_that_can(
    tmp_path: Path, changes: dict[str, Any], kl: float, said: str
) -> None:
    asked = changed(GRPO, kind="fsdp2", kl=kl, **changes)
    with pytest.raises(UsageError, match=f"strategy=fsdp2 cannot do {said}") as error:
        fit_flow_grpo(None, None, [], asked, tmp_path)  # type: ignore[arg-type]
    assert "deepspeed_zero2" in (error.value.hint or "")


def test_offloading_that_a_strategy_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="offload_optimizer has no meaning for fsdp2"):
        compose("stars_curriculum", ["strategy=fsdp2", "strategy.offload_optimizer=true"])
    with pytest.raises(UsageError, match="offload_weights has no meaning for deepspeed_zero2"):
        compose("stars_curriculum", ["strategy=deepspeed_zero2", "strategy.offload_weights=true"])
    config = compose("stars_curriculum", ["strategy=deepspeed_zero3", "strategy.offload_weights=true"]).strategy
    assert (config.kind, config.devices, config.offload_weights) == ("deepspeed_zero3", 1, True)
