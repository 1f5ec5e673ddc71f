"""Before a run learns from a judge, images that are known to be right or wrong show what the judge sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tiny import MODEL, save_talker
from uni_train.cli.main import uni_train

SMALL = ["rewards.right.function=self_check", "epochs=1", "evaluate=false", "held_out.n=0", "model.threads=1"]
SMALL += ["rollout.prompts_per_epoch=4", "rollout.group_size=2", "rollout.steps=6", "rollout.last_step=1", "rows=8"]


def fit(folder: Path, *given: str) -> str:
    command = ["fit", "flow_grpo_math", *SMALL, *given, f"out={folder}", "name=run"]
    return CliRunner().invoke(uni_train, command).output


def measured(folder: Path) -> dict[str, dict[str, float]]:
    return json.loads((folder / "flow_grpo_math/run/stages/00-grpo/known_images.json").read_text())["right"]


@pytest.mark.slow
def test_a_model_that_looks_pays_right_images_and_is_asked_once_a_run(tmp_path: Path) -> None:
    output = fit(tmp_path, "prompts.task=mapping")
    assert "known images: right pays" in output and "hardly sees" not in output, output
    paid = measured(tmp_path)
    assert paid["right"]["mean"] > 0.9 > 0.1 > paid["wrong"]["mean"] and paid["auc"] > 0.9
    stored = json.loads((tmp_path / "flow_grpo_math/run/stages/00-grpo/manifest.json").read_text())["result"]
    assert stored["known_images"] == {"right": paid}
    page = (tmp_path / "flow_grpo_math/run/report.html").read_text()
    assert "Rewards of known images" in page and f"{paid['auc']:.2f}" in page
    assert "known images" not in fit(tmp_path, "prompts.task=mapping"), "a finished stage is not made again"


@pytest.mark.parametrize(
    ("reply", "data", "messages"),
    [
        ("Final Answer: YES", (), ("pays 1.00 for", "AUC 0.50", "right hardly sees which images are right")),
        ("Draw 2 apples .", (), ("cannot be read for 60 of them", "right hardly sees", "no reward applies")),
        ("Final Answer: YES", ("data.world=everyday", "rollout.size=null"), ("known images: none",)),
        ("Final Answer: YES", ("strategy=fsdp2",), ("known images: none for right",)),
    ],
)
def test_a_judge_that_sees_nothing_is_named(
    reply: str, data: tuple[str, ...], messages: tuple[str, ...], tmp_path: Path
) -> None:
    talker = save_talker(tmp_path / "talker", reply)
    output = fit(tmp_path, *MODEL, f"model.checkpoint={talker}", *data)
    assert all(message in output for message in messages), output
