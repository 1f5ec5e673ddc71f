"""Reinforcement for more epochs than a finished run had, with held-out prompts and evaluations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.run_folder import stage_folders
from uni_train.training.metric_log import read_metrics

QUICK = ["rollout.prompts_per_epoch=8", "rollout.group_size=4", "rollout.steps=6", "rollout.last_step=1"]
QUICK += ["held_out.n=2", "held_out.every=1", "evaluation.n=2", "model.threads=1", "model.sampling.steps=6"]


def fit(out: Path, *overrides: str) -> list[Path]:
    done = CliRunner().invoke(uni_train, ["fit", "--recipe", "flow_grpo_math", *QUICK, f"out={out}", *overrides])
    assert done.exit_code == 0, done.output
    return stage_folders(out / "flow_grpo_math" / "seed0")


@pytest.mark.slow
def test_more_epochs_continue_a_finished_run(tmp_path: Path) -> None:
    *_, whole, last = fit(tmp_path / "whole", "epochs=2")
    assert len(fit(tmp_path / "parts", "epochs=1")) == 3
    before, first, after, second, again = fit(tmp_path / "parts", "epochs=2")
    per = read_metrics(first / "metrics.jsonl")[-1]["step"]
    assert [stage.name for stage in (first, second)] == ["01-grpo", f"03-grpo-from-{per}"]
    assert [*read_metrics(first / "metrics.jsonl"), *read_metrics(second / "metrics.jsonl")] == read_metrics(
        whole / "metrics.jsonl"
    )
    assert [line["epoch"] for line in read_metrics(second / "rollouts.jsonl")] == [1]
    assert read_metrics(second / "held_out.jsonl") == read_metrics(whole / "held_out.jsonl")
    assert json.loads((second / "manifest.json").read_text())["result"]["updates"] == per
    summary = json.loads((again.parents[1] / "summary.json").read_text())
    assert summary["scores"] == json.loads((last.parents[1] / "summary.json").read_text())["scores"]
    scored = json.loads((after / "manifest.json").read_text())["result"]
    assert scored["label"] == "after" and before.name == "00-evaluate-before"
