"""Rewards by asking: strict readings, the model's own first weights, a real endpoint that fails now and then."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.eval.judges.server import Asked, JudgeServer, Refused
from tests.tiny import MODEL, save_talker
from uni_train.config.compose import compose
from uni_train.config.schema import JudgeConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.data_gen.registry import get_task
from uni_train.models.base import Request
from uni_train.models.load import build_model
from uni_train.models.pictures import decode_png
from uni_train.recipes.flow_grpo.training import rewards
from uni_train.rewards.config import RewardConfig
from uni_train.rewards.contract import Reward, score
from uni_train.rewards.judging import Judge, ModelReward, SelfCheck, read_score
from uni_train.rewards.registry import Trained
from uni_train.training.second_weights import Reference


def self_check(model: Any, batch: int) -> SelfCheck:
    every = {name for name, _ in model.named_parameters()}
    return SelfCheck(RewardConfig(function="self_check"), Trained(model, lambda: Reference(model, every).active, batch))


PICTURES = [np.full((24, 24, 3), value, np.uint8) for value in (0, 100, 200, 250)]


def test_the_question_shows_inputs_and_picture_and_a_failure_is_none() -> None:
    seen: list[Request] = []

    def answer(requests: Sequence[Request]) -> list[str | Exception]:
        seen.extend(requests)
        return ["Score: 3", UserError("away"), "no idea", "Score: 9"]

    asked = ModelReward(answer, lambda prompt, item: f"is it {prompt}?", read_score)
    columns = {"id": list("abcd"), "images": [[PICTURES[3]], [], [], []], "level": [1] * 4}
    assert asked(["red"] * 4, PICTURES, **columns) == [0.3, None, None, 0.9]
    assert [len(one.images) for one in seen] == [2, 1, 1, 1] and seen[0].prompt == "is it red?"
    assert seen[0].images[-1] is PICTURES[0] and len({one.seed for one in seen}) == 4


@pytest.mark.parametrize(("said", "value"), [("YES", 1.0), ("NO", 0.0)])
def test_the_model_checks_its_pictures_with_its_first_weights(said: str, value: float, tmp_path: Path) -> None:
    talker = save_talker(tmp_path / "talker", f"Final Answer: {said}")
    model = build_model(compose("stars_curriculum", [*MODEL, f"model.checkpoint={talker}"]).model)
    item = get_task("maths", "nano").sample(0, 1)[0]
    asked = self_check(model, batch=3)
    columns = {"id": [item.id] * 4, "images": [[]] * 4, "item": [item] * 4}
    assert asked([item.prompt] * 4, PICTURES, **columns) == [value] * 4
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert asked([item.prompt] * 4, PICTURES, **columns) == [value] * 4
    assert not any(parameter.any() for parameter in model.parameters())
    trained_now = self_check(model, batch=4)
    assert trained_now([item.prompt] * 4, PICTURES, **columns) == [None] * 4, "nothing readable, so no reward"


def rated(asked: Asked) -> str | Refused:
    """Scores by the brightness of the last image; refuses one of them."""
    value = int(decode_png(base64.b64decode(asked.images[-1].split(",")[1])).mean())
    text = {0: "I cannot tell.", 100: "Dim.\nScore: 4", 250: "Bright.\nScore: 10"}.get(value)
    return Refused(400, "bad picture") if text is None else text


def test_a_judge_scores_and_what_it_cannot_score_is_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"id": list("abcd"), "images": [[]] * 4}
    with JudgeServer(lambda one: rated(one) if one.key == "sesame" else Refused(401, "wrong key")) as server:
        config = JudgeConfig(model=f"{server.url}#judge", key_env="JUDGE_KEY", retries=0)
        monkeypatch.setenv("JUDGE_KEY", "sesame")
        asked = Judge(RewardConfig(function="judge", judge=config))
        assert asked(["red"] * 4, PICTURES, **columns) == [None, 0.4, None, 1.0]
        found = score(
            [Reward("judge", asked), Reward("bright", lambda completions, **_: [float(i.mean()) for i in completions])],
            ["red"] * 4, PICTURES, columns, group_size=4,
        )  # fmt: skip
        assert found.total.tolist() == [0.7 + 0, 0.4 + 100, 0.7 + 200, 1.0 + 250]
        monkeypatch.setenv("JUDGE_KEY", "wrong")
        with pytest.raises(UserError, match="refuses the key in JUDGE_KEY") as error:
            Judge(RewardConfig(function="judge", judge=config))(["red"] * 4, PICTURES, **columns)
        assert "wrong" not in str(error.value) + str(error.value.hint)


def test_a_judge_answers_the_question_of_the_filter_by_yes_or_no() -> None:
    item = get_task("maths", "nano").sample(0, 1)[0]
    replies = iter(["Seen 1 cup .\nFinal Answer: NO", "Final Answer: YES", "Score: 7", "Final Answer: NO"])
    columns = {"id": list("abcd"), "images": [[]] * 4, "item": [item] * 3 + [None]}
    with JudgeServer(lambda _: next(replies)) as server:
        config = JudgeConfig(model=f"{server.url}#judge", question="filter", connections=1)
        values = Judge(RewardConfig(function="judge", judge=config))([item.prompt] * 4, PICTURES, **columns)
    assert values == [0, 1, None, 0]
    assert [f"Question: {item.prompt}" in asked.words for asked in server.asked] == [True] * 3 + [False]
    assert f"Instruction: {item.prompt}" in server.asked[-1].words, "without an item, in words that suit any task"


def test_a_recipe_names_who_is_asked() -> None:
    address = "rewards.j={function:judge,weight:0.5,judge:{model:'http://127.0.0.1:9/v1#m',retries:0,timeout:1}}"
    config = compose("flow_grpo_math", [address])
    assert config.used_rewards["j"].judge.model.endswith("#m")
    model = build_model(compose("stars_curriculum", MODEL).model)
    with pytest.raises(UserError, match="does not answer"):
        rewards(config, model)
    with pytest.raises(UsageError, match="function=judge and a judge's address belong together"):
        compose("flow_grpo_math", ["rewards.j={function:judge}"])
    both = compose("flow_grpo_math", ["rewards.understood={function:self_check,weight:0.5}"])
    assert [(r.name, r.weight) for r in rewards(both, model)] == [("right", 1.0), ("understood", 0.5)]
