"""The benchmark measures what it says: the recipe's own step, and products counted as one would by hand."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import lightning_loop, nano
from uni_train.config.compose import compose
from uni_train.config.kinds import Updates
from uni_train.config.schema import OptimizerConfig, StrategyConfig, TrainingConfig
from uni_train.models.base import Example
from uni_train.recipes.stars.config import StarsConfig
from uni_train.training.curriculum import Constant


@pytest.fixture(scope="module")
def workbench() -> nano.Workbench:
    config = compose("stars_curriculum", ["model.checkpoint=null", "batch.prompts=8", "trained=all"])
    assert isinstance(config, StarsConfig)
    return nano.Workbench.build(config)


def test_counted_products_are_those_of_the_decoder_and_little_else(workbench: nano.Workbench) -> None:
    batch, sizes = workbench.batch(), workbench.config.model.architecture
    weights = 4 * sizes.hidden_size**2 + 3 * sizes.hidden_size * sizes.intermediate_size
    by_hand = 0
    for part in batch:
        rows, tokens = part.und_id.shape[0], part.und_id.shape[1] + part.gen_rope.shape[1]
        by_hand += sizes.layers * (2 * rows * tokens * weights + 4 * rows * tokens**2 * sizes.hidden_size)
    with FlopCounterMode(display=False) as counter:
        workbench.forward_backward(batch)
    # Each product has two gradients. The rest is the heads, the ViT and the embeddings of latents and noise levels.
    assert 1 <= counter.get_total_flops() / (3 * by_hand) < 1.1


def test_both_loops_make_the_same_updates() -> None:
    torch.manual_seed(0)
    cost = lightning_loop.compare(
        lightning_loop.NearlyEmpty(),
        {"rows": [Example("")]},
        Constant({"rows": 1.0}),
        TrainingConfig(optimizer=OptimizerConfig(lr=1e-3), strategy=StrategyConfig(accelerator="cpu")),
        Updates(6, rows=1),
        repeats=1,
    )
    assert cost.updates == 6 - lightning_loop.SKIPPED
    assert 0 < cost.batch.wall < cost.bare.wall and cost.wall_ratio > 0
