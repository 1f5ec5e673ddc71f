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
from uni_train.distributed.ranks import Ranks
from uni_train.errors import UsageError, UserError
from uni_train.rewards.contract import Reward
from uni_train.training.flow_grpo.micro_batches import update_rows
from uni_train.training.flow_grpo.rollout import Rollouts, collect, unfinished


def drawn(grpo: Any, rewards: list[Reward]) -> Rollouts:
    return collect(ToyFlow(), PROMPTS.prompts[:4], rewards, grpo, "grpo", 0)[0]


@pytest.mark.parametrize("shared", [False, True])
def test_a_group_may_begin_with_the_same_noise(shared: bool) -> None:
    rollouts = drawn(changed(TOY, shared_noise=shared), [Reward("none", lambda prompts, **_: [0.0] * len(prompts))])
    begins = rollouts.latents[:, 0].reshape(4, 4, -1)
    same = (begins == begins[:, :1]).all(-1)
    assert bool(same[:, 1:].all()) == shared and bool(same[:, 1:].any()) == shared
    assert not torch.equal(begins[0, 0], begins[1, 0]), "groups differ"
    assert len({tuple(one) for one in rollouts.final.flatten(1).tolist()}) == 16, "random steps are each image's own"


@pytest.mark.parametrize(("complete", "whole"), [("mixed", [2]), ("unsolved", [1, 2, 3])])
def test_of_flat_groups_a_half_is_drawn(complete: str, whole: list[int]) -> None:
    """Group 0 is all right, group 1 all wrong, group 2 alternates, group 3 is worth half throughout."""
    asked: list[tuple[int, int]] = []

    def reward(prompts: list[str], completions: list[np.ndarray], place: Any, number: Any, **_: Any) -> list[float]:
        asked.extend((n, at % 4) for n, at in zip(number, place, strict=True))
        return [[1.0, 0.0, float(at % 2), 0.5][n] for n, at in zip(number, place, strict=True)]

    grpo = changed(TOY, complete=complete)
    rollouts = drawn(grpo, [Reward("some", reward)])
    expected = {(n, j) for n in range(4) for j in range(4 if n in whole else 2)}
    assert len(asked) == len(expected) and set(asked) == expected
    assert rollouts.totals.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0.5, 0.5, 0.5, 0.5]
    assert rollouts.statistics["completed"] == len(whole) / 4
    assert rollouts.advantages.tolist() == pytest.approx([0] * 8 + [-0.5 / 0.5001, 0.5 / 0.5001] * 2 + [0] * 4)
    trained = {image for update in range(2) for image, _ in update_rows(rollouts, grpo, "grpo", update)}
    assert trained == {8, 9, 10, 11}, "flat groups are not trained on, drawn whole or not"

    everything = drawn(TOY, [Reward("some", reward)])
    for name in ("latents", "log_probs", "final"):
        own, other = getattr(rollouts, name), getattr(everything, name)
        rows = [4 * n + j for n, j in sorted(expected)]
        torch.testing.assert_close(own[rows], other[rows], msg=f"{name}: what is drawn is what would be drawn")
    assert torch.equal(rollouts.final[2:4], rollouts.final[:2]), "the first half stands for the second"
    assert rollouts.statistics["brightness"] != everything.statistics["brightness"]


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
            return collect(ToyFlow(), PROMPTS.prompts[:4], [Reward("some", reward)], TOY, "grpo", 0, Rank(rank, 2))[0]
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


def test_solved_is_what_every_reward_gives_its_most_for() -> None:
    rewards = [Reward("a", lambda: [], 2.0), Reward("b", lambda: [], 0.5), Reward("penalty", lambda: [], -1.0)]
    first = np.array([[2.5, 2.5], [2.0, 2.0], [2.5, 2.0], [0.0, 0.0]])
    assert unfinished(first, rewards, "unsolved").tolist() == [False, True, True, True]
    assert unfinished(first, rewards, "mixed").tolist() == [False, False, True, False]


def test_what_cannot_be_drawn_so_is_refused() -> None:
    for recipe, overrides, says in (
        ("flow_grpo_maze", ["rollout.complete=mixed", "rollout.group_size=3"], "half a group first: group_size is odd"),
        ("flow_grpo_maze", ["rollout.shared_noise=true", "variant=diffusion_nft"], "a group would be one image"),
        ("unigrpo_math", ["rollout.complete=mixed"], "thoughts are written for whole groups"),
    ):
        with pytest.raises(UsageError, match=says):
            compose(recipe, overrides)
