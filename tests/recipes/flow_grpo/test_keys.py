"""Settings of flow_grpo that cannot be meant are refused when the recipe is composed, with what can."""

from __future__ import annotations

import pytest

from uni_train.config.compose import compose
from uni_train.core.errors import UsageError


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["updates_per_epoch=5"], "192 images cannot be divided into 5 equal updates.*updates_per_epoch=4"),
        (["updates_per_epoch=4", "passes=3"], "equal updates in 3 passes"),
        (["rollout.group_size=1"], "rollout.group_size must be at least 2"),
        (["prompts.path=x.jsonl"], "prompts needs one of task and path"),
        (["prompts.task=null"], "prompts needs one of task and path"),
        (["rewards.solved=null"], "rewards is empty"),
        (["rewards.solved.weight=0"], r"rewards.solved.weight is 0"),
        (
            ["rewards.solved.python=/usr/bin/python3"],
            "rewards.solved.python runs a function.*function=verifier is none",
        ),
        (["rewards.solved.function=python"], "function=python is none"),
        (["rewards.solved.address=http://127.0.0.1:8000/x"], "rewards.solved: function=server and an address belong"),
        (["rewards.solved.function=server"], "rewards.solved: function=server and an address belong"),
        (["rewards.x={function: server, address: 'ftp://x'}"], "'ftp://x' is no address.*Write http://HOST:PORT/PATH"),
        (["rewards.solved.model=x"], "rewards.solved.model is of function=pickscore"),
        (["prompts.levels=[]"], "prompts.levels is empty"),
        (["rollout.window=9"], "rollout.window 9 does not fit between step 0 and step"),
        (["variant=cps", "rollout.steps=8", "rollout.last_step=8"], "The last step of cps has no noise"),
        (["variant=cps", "rollout.noise_level=1.5"], "rollout.noise_level of cps must be between 0 and 1"),
        (["rollout.noise_level=0"], "leaves no step random"),
        (["objective.baseline=batch", "objective.scale_rewards=group"], "groups of equal rewards have no deviation"),
        (["objective.clip_low=1"], "objective.clip_low must be below 1"),
        (["variant=grpo"], "variant must be one of flow_grpo, fast, cps, dance, guard, mix, dppo, diffusion_nft, awm"),
    ],
)
def test_what_cannot_be_meant_is_named(overrides: list[str], message: str) -> None:
    sizes = ["rollout.prompts_per_epoch=24", "rollout.group_size=8", "rollout.steps=8", "rollout.last_step=4"]
    with pytest.raises(UsageError) as error:
        compose("flow_grpo_maze", [*sizes, *overrides])
    assert all(part in " ".join(str(error.value).split()) for part in message.split(".*"))
