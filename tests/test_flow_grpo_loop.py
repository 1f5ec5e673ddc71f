"""The loop to read (examples/flow_grpo_loop.py): it learns on nano, and its formulas are those of the trainer."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from uni_train.config.schema import OptimizerConfig
from uni_train.data_gen.registry import get_task
from uni_train.flow.advantages import group_advantages, group_index
from uni_train.flow.schedule import Schedule
from uni_train.models.base import FlowPolicy
from uni_train.models.load import build_model, model_config
from uni_train.training.flow_grpo.batches import MicroBatch
from uni_train.training.flow_grpo.config import GrpoConfig, RolloutConfig
from uni_train.training.flow_grpo.losses import Losses
from uni_train.training.flow_grpo.variants import ObjectiveConfig
from uni_train.training.trained import train_only

FILE = Path(__file__).parents[1] / "examples" / "flow_grpo_loop.py"


@pytest.fixture(scope="module")
def loop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flow_grpo_loop", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flow_grpo_loop"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def nano() -> FlowPolicy:
    return build_model(model_config("nano")).eval()


@pytest.mark.slow
def test_the_reward_rises(loop: ModuleType, nano: FlowPolicy) -> None:
    settings = loop.Settings(epochs=5, prompts=3, group=6, steps=4)
    lines = list(loop.train(nano, loop.ink, settings))
    assert lines[-1]["reward"] > lines[0]["reward"] + 0.03, lines
    assert all(line["clipped"] <= 1 and torch.isfinite(torch.tensor(line["loss"])) for line in lines)


def test_losses_and_gradients_are_those_of_the_trainer(loop: ModuleType, nano: FlowPolicy) -> None:
    settings = loop.Settings(prompts=2, group=3, steps=4, kl=0.05, clip=1e-3)
    trained = train_only(nano, "moe_gen")
    items = get_task("maths", "nano").generate(2, 1, "train", 0)
    sampled = loop.rollout(nano, items, settings, 0)
    rewards = torch.tensor([loop.ink(item, image) for item, image in zip(items * 3, sampled.images, strict=True)])
    advantage = loop.advantages(rewards, 3)
    torch.testing.assert_close(advantage, group_advantages(rewards, group_index([0, 0, 0, 1, 1, 1])))

    config = GrpoConfig(
        epochs=1,
        rollout=RolloutConfig(prompts_per_epoch=2, group_size=3, steps=4, last_step=3),
        objective=ObjectiveConfig(kl=0.05),
        optimizer=OptimizerConfig(lr=1e-3),
    )
    losses, reference = Losses(nano, config, trained), copy.deepcopy(nano)
    parameters = [p for name, p in nano.named_parameters() if name in trained]
    rows, log_ratios = torch.tensor([4, 0, 3, 5]), []
    for moved in (False, True):
        if moved:
            with torch.no_grad():
                for place, parameter in enumerate(parameters):
                    noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(place))
                    parameter.add_(2e-3 * noise)
        for step in range(settings.noisy):
            mine, metrics = loop.policy_loss(nano, reference, sampled, advantage, step, rows, settings)
            batch = MicroBatch(
                x=sampled.latents[rows, step],
                t=sampled.levels[step].expand(len(rows)),
                condition=sampled.condition.select(rows.tolist()),
                advantage=advantage[rows],
                mask=torch.ones(len(rows), sampled.latents.shape[2], 1, dtype=torch.bool),
                schedule=Schedule(sampled.levels),
                steps=torch.full((len(rows),), step),
                x_next=sampled.latents[rows, step + 1],
                old_log_prob=sampled.log_probs[rows, step],
            )
            theirs, known, log_ratio = losses.step_loss(batch)
            assert log_ratio is not None
            assert mine.item() == pytest.approx(theirs.item(), rel=1e-5, abs=1e-7)
            assert metrics["kl"] == pytest.approx(known["kl"].item(), rel=1e-4, abs=1e-9)
            pairs = zip(torch.autograd.grad(mine, parameters), torch.autograd.grad(theirs, parameters), strict=True)
            assert all(torch.allclose(one, other, rtol=1e-3, atol=1e-7) for one, other in pairs)
            log_ratios.append(float(log_ratio.abs().max()))
    assert max(log_ratios[:3]) < 1e-5 < 1e-3 < max(log_ratios[3:]), "on-policy, then beyond the clip range"
