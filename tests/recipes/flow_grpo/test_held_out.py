"""Held-out prompts of a file: what is missing counts for nothing, batches and names change nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.eval.scored import read_folder
from uni_train.eval.validation import estimates
from uni_train.models.base import Request
from uni_train.rewards.contract import Prompt, Reward
from uni_train.stages.validation import ValidationPrompts

PROMPTS = [Prompt(f"p{i}", f"prompt {i}", columns={"number": i}) for i in range(9)]


class Drawer:
    """Draws 2 x 2 pixels as bright as the prompt's number."""

    def draw(self, requests: Sequence[Request]) -> list[np.ndarray]:
        return [np.full((2, 2, 3), 20 * int(one.id[1:]), np.uint8) for one in requests]


def bright(prompts: list[str], completions: list[np.ndarray], number: list[int], **_: Any) -> list[float]:
    assert [int(image.max()) // 20 for image in completions] == number
    return [float(image.mean()) for image in completions]


def evaluate(folder: Path, rewards: Sequence[Reward], batch: int = 8) -> dict[str, float]:
    held_out = ValidationPrompts({"rows.jsonl": PROMPTS}, 0, batch, rewards=rewards)
    return held_out.evaluate(Drawer(), 3, folder)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_a_missing_reward_counts_for_nothing_whatever_the_batch(batch: int, tmp_path: Path) -> None:
    def judge(prompts: list[str], number: list[int], **_: Any) -> list[float | None]:
        return [None if n in (0, 4, 8) else 1.0 for n in number]

    # "reward" is a name like another one.
    rewards = [Reward("judge", judge, 0.5), Reward("reward", bright, 2.0)]
    assert evaluate(tmp_path, rewards, batch) == {"held_out": 160.5, "held_out/judge": 1.0, "held_out/reward": 80.0}
    scored = [*read_folder(tmp_path / "held_out" / "step=00000003")]
    rewards_of = [dict(one.sample.facts["rewards"]) for one in scored]
    assert rewards_of == [{"judge": None if i in (0, 4, 8) else 1.0, "reward": 20.0 * i} for i in range(9)]
    assert [one.sample.ask.case.id for one in scored if one.sample.parts] == [f"p{i}" for i in range(6)]
    found = estimates(scored)
    assert found["judge"].n == 6 and found["reward"].low < 80 < found["reward"].high


def test_a_reward_for_one_image_is_no_validation(tmp_path: Path) -> None:
    def rare(prompts: list[str], number: list[int], **_: Any) -> list[float | None]:
        return [1.0 if n == 4 else None for n in number]

    with pytest.raises(UserError, match=r"rows.jsonl: rare has a value for 1 of 9 images"):
        evaluate(tmp_path, [Reward("bright", bright), Reward("rare", rare)])


@pytest.mark.parametrize(
    ("columns", "prompts", "message"),
    [
        *(({name: 1}, 2, f"has the column {name}") for name in ("item", "prompts", "completions", "place")),
        ({"facts": {}}, 2, None),
        ({}, 1, "prompts.jsonl: 1 prompts"),
    ],
)
def test_files_that_cannot_be_held_out_are_refused(
    columns: dict[str, Any], prompts: int, message: str | None, tmp_path: Path
) -> None:
    """By columns that rewards are given otherwise, or by a single prompt."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        "".join(json.dumps({"prompt": f"Draw {n} apples .", **columns}) + "\n" for n in range(1, 1 + prompts))
    )
    ended = CliRunner().invoke(uni_train, ["fit", "flow_grpo_math", f"held_out.path={file}", "--dry-run"])
    assert ended.exit_code == (1 if message else 0) and (message or "") in ended.output, ended.output


def test_a_reward_of_ones_own_is_tried_with_an_image_as_large_as_the_one_shown(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def copied(completions, images, **_):\n"
        "    return [-float(abs(x * 1.0 - shown[0]).mean()) for x, shown in zip(completions, images)]\n"
    )
    own = f"rewards.own={{function: '{tmp_path / 'own.py'}:copied'}}"
    given = ["fit", "--recipe", "flow_grpo_maze", "model.checkpoint=null", own, "--dry-run"]
    tried = CliRunner().invoke(uni_train, given)
    assert tried.exit_code == 0, tried.output
    refused = CliRunner().invoke(uni_train, [*given, "rollout.size=32"])
    assert refused.exit_code == 1 and "the reward own raised ValueError" in refused.output


@pytest.mark.slow
def test_adapters_may_be_rewarded_by_the_models_own_check(tmp_path: Path) -> None:
    (tmp_path / "asked.jsonl").write_text('{"prompt": "Draw 2 apples ."}\n{"prompt": "Draw 3 apples ."}\n')
    given = ["trained=lora", "rewards.right={function: self_check}", f"held_out.path={tmp_path / 'asked.jsonl'}"]
    given += ["rollout.prompts_per_epoch=8", "rollout.group_size=4", "rollout.steps=6", "rollout.last_step=1"]
    given += ["epochs=1", "evaluate=false", "model.threads=1", "model.sampling.steps=6", f"out={tmp_path}"]
    done = CliRunner().invoke(uni_train, ["fit", "--recipe", "flow_grpo_math", *given])
    assert done.exit_code == 0 and "Rewards of" in done.output, done.output
