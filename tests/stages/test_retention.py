"""What a run does not train, measured with its first and its last weights after everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny import TINY, fit
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.stages.retention import retained


def test_a_finished_run_is_measured_and_its_numbers_stay(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("Draw 2 apples .\nDraw 3 cups .\n")
    keys = (*TINY, "retention.n=2", f"retention.prompts={tmp_path / 'kept.txt'}")
    before = {file: file.read_bytes() for file in copy.glob("stages/*/manifest.json")}
    done = fit(tmp_path, *keys, "retention.sets=[maths_paper1]")
    assert done.exit_code == 0 and "Neither model has an item right in 1 sets: maths_paper1" in done.output, done.output
    folder = copy / "retention"
    last = sorted(file.parent.name for file in copy.glob("stages/*/model"))[-1]
    scores = {file: file.read_bytes() for file in folder.glob("*/scores.json")}
    assert {file.parent.name for file in scores} == {"start", last}
    assert len(list((folder / "held_out").glob("step=*"))) == 2
    report = (copy / "report.html").read_text()
    assert "What else changed" in report and "Draw 3 cups ." in report
    assert fit(tmp_path, *keys, "retention.sets=[maths_paper1]").exit_code == 0
    assert {file: file.read_bytes() for file in folder.glob("*/scores.json")} == scores
    drawn = {file: file.stat().st_mtime_ns for file in folder.glob("held_out/*/*")}
    assert fit(tmp_path, *keys, "retention.sets=[maths_paper2]").exit_code == 0
    assert {file: file.stat().st_mtime_ns for file in folder.glob("held_out/*/*")} == drawn  # asked as before
    assert "maths_paper2" in (copy / "report.html").read_text()
    assert json.loads((folder / "retention.json").read_text())["sets"] == [["maths_paper2"], 2]
    assert {file: file.read_bytes() for file in before} == before


def test_all_sets_are_those_that_the_model_draws_and_the_run_does_not_train() -> None:
    rounds = "rounds=[{task: mapping, level: 1, prompts: 24, updates: 1}]"
    stars = retained(compose("stars_curriculum", [rounds]))
    assert {"mapping2", "math1", "maze4"} <= {*stars} and "mapping1" not in stars
    maze = retained(compose("flow_grpo_maze", ["prompts.levels=[4]", "model.checkpoint=null"]))
    assert "maze5" in maze and not {"maze4", "math1"} & {*maze}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("retention.sets=[math9]", "unknown set math9"),
        ("retention.prompts=gone.txt", "there is nothing at gone.txt"),
        ("retention.sets=[math1] retention.n=9999", "retention.n 9999 is too many for math1"),
        ("retention.prompts=FILE", "does not know the word 'unheard'"),
        ("retention.rows=FILE", "must be .jsonl"),
    ],
)
def test_what_cannot_be_measured_is_named_first(key: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("unheard of\n")
    try:
        result = fit(tmp_path, *TINY, *key.replace("FILE", str(tmp_path / "new.txt")).split())
        output, code = result.output, result.exit_code
    except UsageError as error:
        output, code = str(error), 1
    assert code != 0 and message in output and not (tmp_path / "stars_curriculum").exists()
