"""Reinforcement on two ranks and on one: the same pictures, rewards, losses, weights; resuming; one rank that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tests.training.flow_grpo.toy import GRPO as TOY
from tests.training.flow_grpo.toy import PROMPTS, SOLVED, ToyFlow
from tests.training.keys import changed
from uni_train.config.schema import SolvedRowsConfig
from uni_train.errors import UsageError
from uni_train.rewards.contract import Reward
from uni_train.training.flow_grpo.trainer import fit_flow_grpo
from uni_train.training.metric_log import read_metrics

ROOT = Path(__file__).parents[3]
GRPO = changed(
    TOY, kl=0.01, clip_low=0.1, clip_high=0.1, eps=1e-3, sft=SolvedRowsConfig(path="rows.jsonl", rows=5, weight=0.1)
)


def lit(prompts: list[str], completions: list[np.ndarray], **_: Any) -> list[float]:
    """Bright enough, or not at all: most groups teach nothing, and ranks have unlike numbers of pictures to learn."""
    return [float(image.mean() > 150) for image in completions]


def broken(prompts: list[str], completions: list[np.ndarray], **columns: Any) -> list[float | None]:
    """Fails where one prompt is, which is on one rank."""
    return [float("nan") if name == "p3" else 1.0 for name in columns["id"]]


def train(out: Path, devices: int, reward: Any = lit, **changes: Any) -> ToyFlow:
    model = ToyFlow()
    kind = "ddp_fork_find_unused_parameters_true" if devices > 1 else "single"
    looks = lambda step: {"held_out": step / 10}  # noqa: E731
    fit_flow_grpo(
        model, PROMPTS, [Reward("it", reward)], changed(GRPO, devices=devices, kind=kind, **changes), out,
        evaluate=looks, evaluate_every=1, progress=False, keep=9, log_every=1, sft_rows=SOLVED,
    )  # fmt: skip
    return model


def on_two(out: Path, reward: str = "lit") -> subprocess.CompletedProcess[str]:
    """In a process of its own, because it forks."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.flow_grpo.test_ranks", str(out), reward]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def epochs(out: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_metrics(out / "rollouts.jsonl")]


@pytest.mark.slow
def test_two_ranks_draw_and_learn_what_one_does_and_go_on_where_they_stopped(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    whole = train(one, 1).state_dict()
    ended = on_two(two)
    assert ended.returncode == 0, ended.stderr
    both = load_file(two / "final.safetensors")
    assert any(line["frac_reward_zero_std"] > 0 for line in epochs(one)) and any(
        line["kl"] > 0 for line in metrics(one)
    )
    for file in (epochs, metrics):
        assert len(file(one)) == len(file(two))
        for first, second in zip(file(one), file(two), strict=True):
            assert first.keys() == second.keys()
            for name, value in first.items():
                assert second[name] == pytest.approx(value, rel=1e-3, abs=1e-6), (file.__name__, name)
    start = ToyFlow().state_dict()
    for name, value in whole.items():
        assert float((both[name] - value).abs().max()) <= 1e-3 * float((value - start[name]).abs().max()) + 1e-9, name

    lines = (two / "metrics.jsonl").read_text()
    for step in (4, 6):  # what is left was written after the first epoch
        shutil.rmtree(two / "checkpoints" / f"step={step:08d}")
    alone = train(Path(shutil.copytree(two, tmp_path / "copy")), 1).state_dict()
    for name, value in both.items():
        assert float((alone[name] - value).abs().max()) <= 1e-3 * float((value - start[name]).abs().max()) + 1e-9, name
    ended = on_two(two)
    assert ended.returncode == 0, ended.stderr
    assert (two / "metrics.jsonl").read_text() == lines and len(read_metrics(two / "held_out.jsonl")) == 4
    again = load_file(two / "final.safetensors")
    assert all(bool((again[name] == value).all()) for name, value in both.items())


def metrics(out: Path) -> list[dict[str, Any]]:
    return read_metrics(out / "metrics.jsonl")


@pytest.mark.slow
def test_a_reward_that_fails_on_one_rank_ends_all(tmp_path: Path) -> None:
    ended = on_two(tmp_path, "broken")
    assert ended.returncode != 0 and "the reward it of the image of p3 is nan" in ended.stderr


def test_groups_that_ranks_cannot_share_are_refused_with_the_nearest_that_they_can(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="prompts_per_epoch=5 cannot be divided among 2 devices") as error:
        train(tmp_path, 2, prompts_per_epoch=5)
    assert "prompts_per_epoch=4 or 6" in (error.value.hint or "")
    with pytest.raises(UsageError) as error:
        changed(GRPO, prompts_per_epoch=3).check_ranks(4)
    assert "prompts_per_epoch=4." in (error.value.hint or "")
    with pytest.raises(UsageError, match=r"sft\.rows=5 are fewer than the 8 devices"):
        changed(GRPO, prompts_per_epoch=8).check_ranks(8)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    save_file(train(place, 2, globals()[sys.argv[2]]).state_dict(), place / "final.safetensors")
