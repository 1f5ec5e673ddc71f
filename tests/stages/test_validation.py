"""Held-out looks while fine-tuning: what they leave behind, killed or not, and the report of such a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.models.nano.test_edit import SMALL
from tests.training.keys import killed_after
from uni_train.cli.main import uni_train
from uni_train.data_gen.registry import get_task
from uni_train.eval.images import pixels
from uni_train.eval.scored import read_folder
from uni_train.eval.task_benchmark import item_of
from uni_train.training.metric_log import read_metrics


def fit(mazes: Path, out: Path, *overrides: str) -> Result:
    arguments = [f"out={out}", f"sources.mazes.path={mazes / 'items.jsonl'}", "model.threads=1", *SMALL]
    quick = ["updates=4", "batch.rows=4", "optimizer.warmup_updates=1", "checkpoint_every=1", "ema=0.5"]
    held_out = ["held_out.task=maze", "held_out.levels=[3,4]", "held_out.n=8", "held_out.every=2"]
    return CliRunner().invoke(uni_train, ["fit", "--recipe", "sft_maze", *arguments, *quick, *held_out, *overrides])


@pytest.mark.slow
def test_a_run_watches_held_out_mazes_and_ends_in_the_same_numbers_when_killed(tmp_path: Path) -> None:
    mazes = tmp_path / "maze4"
    make = ["--task", "maze", "--style", "nano", "--size", "4", "--n", "8", "--split", "train", "--out", str(mazes)]
    assert CliRunner().invoke(uni_train, ["data", "make", *make]).exit_code == 0
    result = fit(mazes, tmp_path / "whole")
    assert result.exit_code == 0, result.output
    assert "Success on validation prompts" in result.output and "report:" in result.output
    run = tmp_path / "whole" / "sft_maze" / "seed0"
    stage = run / "stages" / "00-sft"
    lines = read_metrics(stage / "held_out.jsonl")
    assert [line["step"] for line in lines] == [0, 2, 4] and "held_out/3" in lines[0]

    scored = [*read_folder(stage / "held_out" / "step=00000004")]
    assert [one.sample.ask.case.set for one in scored] == ["level 3"] * 8 + ["level 4"] * 8
    assert [bool(one.sample.parts) for one in scored] == ([True] * 6 + [False] * 2) * 2
    assert lines[2]["held_out"] == sum(one.passed for one in scored) / 16
    first, item = scored[0], item_of(scored[0].sample.ask.case)
    assert (item.level, item.split) == (3, "validation")
    assert first.verdict == get_task("maze", "nano").verify(item, pixels(first.sample.drawn[0]))
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Success on held-out prompts" in page and "Training curves" in page and 'id="groups' not in page

    with killed_after(3):
        fit(mazes, tmp_path / "cut")
    assert fit(mazes, tmp_path / "cut").exit_code == 0
    again = tmp_path / "cut" / "sft_maze" / "seed0" / "stages" / "00-sft"
    for name in ("held_out.jsonl", "metrics.jsonl", "held_out/step=00000004/00000.parquet"):
        assert (again / name).read_bytes() == (stage / name).read_bytes(), name
