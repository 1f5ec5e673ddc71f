"""What ranks train on: their own images, in equally many micro-batches that fit, and nothing that teaches nothing."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.flow_grpo.toy import GRPO as TOY
from tests.training.flow_grpo.toy import NUMBERS, PROMPTS, TOKENS, ToyFlow
from tests.training.keys import changed
from uni_train.config.kinds import Updates
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.flow.window import Window
from uni_train.training.flow_grpo.batches import MicroBatch
from uni_train.training.flow_grpo.config import GrpoConfig
from uni_train.training.flow_grpo.rollout import Rollouts, Sampling, requests_of
from uni_train.training.flow_grpo.trainer import FlowGrpoModule, ImageStep, update_rows

GRPO = changed(TOY, updates_per_epoch=1, prompts_per_epoch=32, group_size=8, last_step=2, rows=3)


def rollouts_of(config: GrpoConfig, flat: int, ranks: Ranks = ALONE) -> Rollouts:
    """Zeros; the first `flat` groups teach nothing."""
    k, groups = config.rollout.group_size, ranks.shard(config.rollout.prompts_per_epoch)
    images = range(groups.start * k, groups.stop * k)
    latents = torch.zeros(len(images), config.window_size + 1, TOKENS, NUMBERS)
    prompts = [PROMPTS.prompts[0]] * config.rollout.prompts_per_epoch
    none, mask = torch.empty(len(images), 0), torch.ones(len(images), TOKENS, 1, dtype=torch.bool)
    return Rollouts(
        epoch=0, images=images, window=Window(0, config.window_size), latents=latents,
        log_probs=latents[:, 1:, 0, 0], means=none, final=latents[:, 0], mask=mask, thoughts=none,
        thought_log_probs=none, requests=requests_of(prompts, config, "grpo", 0, groups),
        informative=torch.arange(config.images) >= flat * k, advantages=latents[:, 0, 0, 0],
    )  # fmt: skip


def cut(config: GrpoConfig, flat: int, world_size: int, update: int) -> list[list[MicroBatch]]:
    """The micro-batches of each rank."""
    found = []
    for rank in range(world_size):
        ranks = Ranks(rank, world_size, rank, world_size)
        accumulate = config.grad_accumulation_steps(world_size)
        module = FlowGrpoModule(ToyFlow(), config, Updates(config.updates, accumulate), Sampling(PROMPTS, []))
        trainer: Any = SimpleNamespace(global_rank=rank, world_size=world_size)
        trainer.precision_plugin = SimpleNamespace(train_step_context=nullcontext)
        module._trainer, module.rollouts = trainer, rollouts_of(config, flat, ranks)
        found.append(module._micro_batches(update, None))
    return found


@pytest.mark.parametrize(
    ("world_size", "updates", "passes", "most", "flat"),
    [(1, 1, 1, 3, 5), (1, 4, 1, 64, 0), (4, 1, 1, 3, 16), (4, 8, 2, 3, 5), (8, 1, 1, 3, 0), (8, 4, 1, 64, 16)],
)
def test_every_row_is_trained_once_a_pass_by_the_rank_that_sampled_it_in_micro_batches_that_fit(
    world_size: int, updates: int, passes: int, most: int, flat: int
) -> None:
    config = changed(GRPO, updates_per_epoch=updates, passes=passes, rows=most)
    trained: Counter[ImageStep] = Counter()
    for update in range(updates):
        ranks = cut(config, flat, world_size, update)
        assert len({len(batches) for batches in ranks}) == 1, "ranks have equally many"
        steps = config.grad_accumulation_steps(world_size)
        assert min(2, steps) <= len(ranks[0]) <= steps, "the first and the last are none of the empty ones"
        every = [(rank, batch) for rank, batches in enumerate(ranks) for batch in batches]
        assert sum(batch.share for _, batch in every) == pytest.approx(1)
        for rank, batch in every:
            assert len(batch.x) == max(len(batch.rows), 1) <= config.rows and (batch.share > 0) == bool(batch.rows)
            assert all(image // (256 // world_size) == rank for image, _ in batch.rows)
            trained.update(batch.rows)
    assert trained == {(image, step): passes for image in range(flat * 8, 256) for step in range(2)}


def test_flat_groups_make_no_micro_batches_and_without_any_other_only_a_penalty_is_trained_on() -> None:
    assert [len(cut(GRPO, flat, 1, 0)[0]) for flat in (0, 16)] == [-(-512 // 3), -(-256 // 3)]
    assert update_rows(rollouts_of(GRPO, 32), GRPO, "grpo", 0) == []
    assert [batch.share for batch in cut(GRPO, 32, 1, 0)[0]] == [0.0, 0.0], "two micro-batches of padding"
    assert len(update_rows(rollouts_of(GRPO, 32), changed(GRPO, kl=0.1), "grpo", 0)) == 512
