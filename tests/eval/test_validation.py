"""Validations read back, those of the former version too; prompts of a pair are not independent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from uni_train.core.errors import UserError
from uni_train.eval.sample import Scored
from uni_train.eval.scored import shard_path, write_scored
from uni_train.eval.validation import estimates, finished, groups_of, read_validation, results_of

FAIL = {"status": "fail", "checks": [{"name": "count", "status": "fail", "reason": "2, not 3"}]}


def former(folder: Path, members: int = 1, **facts: Any) -> list[Scored]:
    """A folder with one shown prompt, as groups.json has it."""
    folder.mkdir(parents=True)
    row: dict[str, Any] = {"id": "a", "prompt": "draw", "level": 2, "answer": "3 cups", "inputs": ["0-input1.png"]}
    rewards = {"solved": 0.5, "judge": None}
    shown = {"total": 1.5, "rewards": {} if "levels" in facts else rewards, "verdict": FAIL}
    row["members"] = [{"image": f"0-{k}.png", **shown} for k in range(members)]
    for name in ("input1", *range(members)):
        (folder / f"0-{name}.png").write_bytes(f"{name}".encode())
    (folder / "groups.json").write_text(json.dumps({"step": 7, **facts, "groups": [row]}))
    return read_validation(folder)


def test_levels_of_the_former_version_are_counted_and_paired_with_those_of_this_one(tmp_path: Path) -> None:
    """Its prompts without images have no names, so they are paired by their places."""
    passed = "01" * 20
    checks = {"count": [{"0": "fail", "1": "pass"}[mark] for mark in passed], "readable": [None] * 40}
    level = {"n": 40, "passed": passed, "checks": checks}
    alone = former(tmp_path / "step=1", task="maths", split="test", levels={"2": level})
    level["pairs"] = [i // 4 for i in range(40)]
    pairs = former(tmp_path / "step=2", task="maths", split="test", levels={"2": level})
    found, clustered = estimates(alone)["level 2"], estimates(pairs)["level 2"]
    assert found.value == clustered.value == 0.5 and (found.distinct, clustered.distinct) == (None, 10)
    first = alone[0].sample
    assert (first.ask.case.images, first.parts, first.facts) == ((b"input1",), (b"0",), {"step": 7})
    assert first.ask.case.facts["answer"] == "3 cups" and alone[0].verdict and alone[0].verdict.reason == "2, not 3"
    write_scored(shard_path(tmp_path / "step=3", 0), alone[:39] + alone[1:2])
    assert finished(tmp_path) == [tmp_path / f"step={step}" for step in (1, 2, 3)]
    change = results_of(read_validation(tmp_path / "step=3", images=False)).minus(results_of(pairs))
    assert change is not None and (change.both, change.only_first, change.neither) == (20, 0, 20)


def test_rewards_and_galleries_of_the_former_version(tmp_path: Path) -> None:
    values = {"solved": [0.5, 2.5, None], "judge": [None, 1.0, 3.0]}
    scored = former(tmp_path / "rewards", file="rows.jsonl", rewards=values)
    assert {name: (one.value, one.n) for name, one in estimates(scored).items()} == {
        "solved": (1.5, 2),
        "judge": (2.0, 2),
    }
    (group,) = groups_of(former(tmp_path / "gallery", members=3, epoch=1))
    assert [(one.sample.ask.k, one.sample.facts["reward"]) for one in group] == [(0, 1.5), (1, 1.5), (2, 1.5)]
    (tmp_path / "gallery" / "0-1.png").unlink()
    with pytest.raises(UserError, match=r"gallery/groups\.json: cannot be read"):
        read_validation(tmp_path / "gallery")
