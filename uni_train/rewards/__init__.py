"""Rewards: what a drawn image is worth. The contract is trl's, so rewards written for it work; docs/rewards.md.

from uni_train.rewards import task_reward  # for other trainers; no torch is imported
"""

from uni_train.rewards.other_trainers import task_reward

__all__ = ["task_reward"]
