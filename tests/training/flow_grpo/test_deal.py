"""What ranks train on: equally much, never more than fits, nothing that teaches nothing."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from tests.training.flow_grpo.toy import GRPO as TOY
from tests.training.keys import changed
from uni_train.config.schema import GrpoConfig
from uni_train.training.flow_grpo.deal import deal, given_away, micro_batches, random_steps
from uni_train.training.flow_grpo.rollout import Rollouts

GRPO = changed(TOY, updates_per_epoch=1, prompts_per_epoch=32, group_size=8, last_step=2, rows=1)


def drawn(grpo: GrpoConfig, flat: int) -> Rollouts:
    """Images of which the first `flat` groups have equal rewards."""
    totals = torch.arange(grpo.rollout.prompts_per_epoch * grpo.rollout.group_size).double() % grpo.rollout.group_size
    totals[: flat * grpo.rollout.group_size] = 0
    none = torch.empty(0)
    return Rollouts(0, (), None, none, none, none, none, none, none, totals, none, none, none)


@pytest.mark.parametrize("ranks", [1, 8, 32])
@pytest.mark.parametrize(("updates", "passes"), [(1, 1), (4, 1), (8, 2)])
@pytest.mark.parametrize("flat", [0, 5, 16])
def test_no_micro_batch_is_larger_than_asked_and_every_row_is_trained_once_a_pass(
    ranks: int, updates: int, passes: int, flat: int
) -> None:
    grpo = changed(GRPO, updates_per_epoch=updates, passes=passes)
    images = grpo.rollout.prompts_per_epoch * grpo.rollout.group_size // ranks
    rollouts = drawn(grpo, flat)
    deals = [deal(random_steps(rollouts, grpo, "grpo", update), images, ranks) for update in range(updates)]
    for dealt in deals:
        sizes = [len(mine) for mine in dealt]
        assert max(sizes) - min(sizes) <= 1
        count = micro_batches(dealt, grpo.rows)
        assert count <= grpo.grad_accumulation_steps(ranks)
        assert max(len(mine[micro::count]) for mine in dealt for micro in range(count)) <= grpo.rows
    trained = Counter(row for dealt in deals for mine in dealt for row in mine)
    kept = range(flat * grpo.rollout.group_size, grpo.rollout.prompts_per_epoch * grpo.rollout.group_size)
    assert trained == {(image, place): passes for image in kept for place in range(2)}
    moved = {(image, rank) for (_, rank), those in given_away(deals, images).items() for image in those}
    held = {(row[0], rank) for dealt in deals for rank, mine in enumerate(dealt) for row in mine}
    assert moved == {(image, rank) for image, rank in held if image // images != rank}


def test_where_half_of_the_groups_are_flat_half_of_the_micro_batches_are_left() -> None:
    for ranks in (1, 8, 32):
        images = 256 // ranks
        full, half = (
            micro_batches(deal(random_steps(drawn(GRPO, n), GRPO, "grpo", 0), images, ranks), 1) for n in (0, 16)
        )
        assert half == full / 2


def test_without_a_group_that_teaches_only_a_penalty_is_trained_on() -> None:
    assert random_steps(drawn(GRPO, 32), GRPO, "grpo", 0) == []
    assert micro_batches(deal([], 256, 1), 1) == 1
    assert len(random_steps(drawn(GRPO, 32), changed(GRPO, kl=0.1), "grpo", 0)) == 512
