"""What an epoch draws: noise that a group shares, and groups of which only a half is drawn."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.flow_grpo.toy import GRPO as TOY
from tests.training.flow_grpo.toy import PROMPTS, ToyFlow
from tests.training.keys import changed
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError, UserError
from uni_train.distributed.ranks import Ranks
from uni_train.rewards.contract import Reward
from uni_train.training.flow_grpo.rollout import Rollouts, sample_epoch
from uni_train.training.flow_grpo.trainer import update_rows


def drawn(grpo: Any, rewards: list[Reward]) -> Rollouts:
    return sample_epoch(ToyFlow(), PROMPTS.prompts[:4], rewards, grpo, "grpo", 0)[0]


@pytest.mark.parametrize("shared", [False, True])
def test_a_group_may_begin_with_the_same_noise(shared: bool) -> None:
    rollouts = drawn(changed(TOY, shared_noise=shared), [Reward("none", lambda prompts, **_: [0.0] * len(prompts))])
    begins = rollouts.latents[:, 0].reshape(4, 4, -1)
    same = (begins == begins[:, :1]).all(-1)
    assert bool(same[:, 1:].all()) == shared and bool(same[:, 1:].any()) == shared
    assert not torch.equal(begins[0, 0], begins[1, 0]), "groups differ"
    assert len({tuple(one) for one in rollouts.final.flatten(1).tolist()}) == 16, "random steps are each image's own"


def test_groups_of_equal_rewards_are_not_trained_on() -> None:
    """Group 0 is all right, group 1 all wrong, group 2 alternates, group 3 is worth half throughout."""

    def reward(prompts: list[str], completions: list[np.ndarray], place: Any, number: Any, **_: Any) -> list[float]:
        return [[1.0, 0.0, float(at % 2), 0.5][n] for n, at in zip(number, place, strict=True)]

    rollouts = drawn(TOY, [Reward("some", reward)])
    assert rollouts.informative.tolist() == [False] * 8 + [True] * 4 + [False] * 4
    assert rollouts.statistics["reward"] == (4 + 2 + 2) / 16
    assert rollouts.advantages.tolist() == pytest.approx([0] * 8 + [-0.5 / 0.5001, 0.5 / 0.5001] * 2 + [0] * 4)
    trained = {image for update in range(2) for image, _ in update_rows(rollouts, TOY, "grpo", update)}
    assert trained == {8, 9, 10, 11}


def test_beside_the_batch_what_is_missing_is_neither_good_nor_bad() -> None:
    """Group 0 is worth 1, group 1 has no reward, group 2 is worth 0, of group 3 one image has no reward."""

    def reward(prompts: list[str], place: Any, number: Any, **_: Any) -> list[float | None]:
        return [[1.0, None, 0.0, 0.5 if at % 4 else None][n] for n, at in zip(number, place, strict=True)]

    rollouts = drawn(changed(TOY, baseline="batch", scale_rewards="none"), [Reward("some", reward)])
    missing = [4, 5, 6, 7, 12]
    assert rollouts.advantages[missing].tolist() == [0] * 5
    assert rollouts.advantages[:4].tolist() == pytest.approx([0.5] * 4) and rollouts.statistics["reward"] == 0.5


def on_two_ranks(reward: Any) -> list[Rollouts | UserError]:
    """What each of two ranks, here threads, has drawn, or its error."""
    barrier, values = threading.Barrier(2), [None, None]

    class Rank(Ranks):
        def gather(self, value: Any) -> list[Any]:
            values[self.rank] = value
            barrier.wait()
            gathered = list(values)
            barrier.wait()
            return gathered

    def collected(rank: int) -> Rollouts | UserError:
        try:
            return sample_epoch(
                ToyFlow(), PROMPTS.prompts[:4], [Reward("some", reward)], TOY, "grpo", 0, Rank(rank, 2)
            )[0]
        except UserError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(collected, range(2)))


@pytest.mark.parametrize("missing", [7, 8])
def test_images_without_a_reward_are_counted_over_all_ranks(missing: int) -> None:
    """All of them are on the first rank, which draws eight of the sixteen."""

    def reward(prompts: list[str], place: Any, **_: Any) -> list[float | None]:
        return [None if at < missing else 1.0 for at in place]

    for rank in on_two_ranks(reward):
        if missing == 7:
            assert isinstance(rank, Rollouts) and rank.statistics["missing/some"] == 7 / 16
        else:
            assert isinstance(rank, UserError) and "no reward applies to 8 of 16 images, the first of p0" in str(rank)


def test_shared_noise_without_random_steps_is_refused() -> None:
    with pytest.raises(UsageError, match="a group would be one image"):
        compose("flow_grpo_maze", ["rollout.shared_noise=true", "variant=diffusion_nft"])
