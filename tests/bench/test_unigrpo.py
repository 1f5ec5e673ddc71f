"""UniGRPO's rivals: what is run, that it lasts as long as it should, and the table of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import experiment
from bench.experiments import unigrpo
from uni_train.cli.main import uni_train
from uni_train.core.errors import UsageError

SMALL = (
    *("rollout.prompts_per_epoch=2", "rollout.group_size=2", "rollout.steps=3", "rollout.last_step=2"),
    *("model.threads=1", "updates_per_epoch=1"),
    "rewards.right.function=tests.training.flow_grpo.toy:bright",  # of four images none may differ in being right
)


def test_unknown_arms_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot read --only"):
        unigrpo.unigrpo(experiment.Lab(only=["both"]))


@pytest.mark.slow
def test_arms_last_as_their_pace_says_and_are_not_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unigrpo, "PACE", 1)
    ran: list[str] = []

    def fit(arguments: Sequence[str]) -> tuple[int, str]:
        ran.append(next(one for one in arguments if one.startswith("name=")))
        result = CliRunner().invoke(uni_train, ["fit", *arguments])
        return result.exit_code, result.output

    lab = experiment.Lab([0], tmp_path, SMALL, only=["kept", "joint"], fit=fit)
    (tmp_path / "pace.json").write_text('{"joint": 0.5}')
    for _ in range(2):
        lines = list(unigrpo.unigrpo(lab, seconds=1, prompts=4, level=2, tested=3))
    assert ran == ["name=pace-kept-seed0", "name=kept-seed0", "name=joint-seed0"]
    cells = {line.split(" | ")[0]: line.strip("| ").split(" | ") for line in lines[3:]}
    joint, kept = cells["| both, UniGRPO"], cells["| thoughts of right images, cross-entropy"]
    assert joint[2:4] == ["2", "8"], "half a second an epoch"
    assert joint[-1] == "-" and kept[-1].startswith(("+", "-0"))
    summary = json.loads((tmp_path / "unigrpo_math" / "joint-seed0" / "summary.json").read_text())
    scores = [summary["scores"][when]["cot"]["math2"]["value"] for when in ("before", "after")]
    assert joint[8:10] == [f"{100 * scores[1]:.1f}", f"{100 * (scores[1] - scores[0]):+.1f}"] and scores[0] > 0.5
    assert float(joint[4]) >= float(joint[6]) > 50, "level 2 is thought about rightly, step by step"
