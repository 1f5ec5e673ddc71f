"""What rounds ask: the same sample trained on again, other prompts, and the prompts of a file."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import QUICK, finish, fit, save_drawer
from uni_train.config.compose import compose
from uni_train.config.kinds import stage_list
from uni_train.core.errors import UsageError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.jsonl import published_rows, write_items, write_rows
from uni_train.data_gen.registry import get_task
from uni_train.eval.scored import read_folder
from uni_train.recipes.stars import finetune
from uni_train.recipes.stars.config import StarsConfig
from uni_train.recipes.stars.kind import sampled_by
from uni_train.recipes.stars.rounds import most_updates

ONE = "level=1"


def rounds(*changes: dict[str, Any], **config: Any) -> list[int]:
    """The round that samples for each of the recipe's rounds, changed so."""
    given = compose("stars_mapping_rounds", ["level=2"])
    assert isinstance(given, StarsConfig)
    changed = replace(given, rounds=tuple(replace(given.rounds[0], **change) for change in changes), **config)
    return [sampled_by(changed, i) for i in range(len(changes))]


def test_rounds_with_the_same_prompts_of_the_base_share_a_sample() -> None:
    assert rounds({}, {"updates": 7}, {"replay": {"pretrain": 0.5}}) == [0, 0, 0]
    assert rounds({}, {"draw": 1}, {}, {"level": 1}, {"draw": 1}) == [0, 1, 0, 3, 1]
    assert rounds({}, {"prompts": 9}, {"kept": 9}, {"prompts_file": "a"}) == [0, 1, 2, 3]
    assert rounds({}, {}, teacher="current") == [0, 1], "another model samples"
    assert rounds({}, {}, teacher="reference") == [0, 0]


@pytest.mark.slow
def test_a_sample_is_trained_on_again_and_counted_as_drawn_once(tmp_path: Path) -> None:
    run = finish(tmp_path, *QUICK, ONE, "rounds.1.draw=1", recipe="stars_mapping_rounds")
    stages = [folder.name.partition("-")[2] for folder in sorted((run / "stages").iterdir()) if folder.is_dir()]
    assert stages == [
        "evaluate-before", "sample-mapping1", "filter-mapping1", "finetune-mapping1", "evaluate-round1",
        "sample-mapping1-2", "filter-mapping1-2", "finetune-mapping1-2", "evaluate-round2",
        "finetune-mapping1-3", "evaluate-after",
    ]  # fmt: skip
    entries = json.loads((run / "summary.json").read_text(encoding="utf-8"))["rounds"]
    assert [(entry["sampled"], entry["kept"], entry["updates"]) for entry in entries] == [(8, 8, 3)] * 3
    assert [entry["calls"]["images"] for entry in entries] == [8, 8, 0]
    first, last = (samples_of(run, name) for name in ("01-sample-mapping1", "05-sample-mapping1-2"))
    assert not first & last and len(first) == len(last) == 8
    planned = [stage for stage in stage_list(compose("stars_mapping_rounds", ["level=2"])) if stage.kind == "finetune"]
    assert ["of the samples of round 1" in stage.summary for stage in planned] == [False, True, True]


def samples_of(run: Path, stage: str) -> set[str]:
    return {answer.sample.ask.case.id for answer in read_folder(run / "stages" / stage / "shards", images=False)}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["schedule.kind=mixed", "rounds.1.draw=1"], "schedule.kind=mixed trains each set on one sample"),
        (["schedule.kind=ramp", "rounds.1.prompts=9"], "schedule.kind=ramp trains each set on one sample"),
        (["rounds.0.draw=1", "rounds.0.prompts_file=a.jsonl"], "rounds.0 has draw and prompts_file"),
    ],
)
def test_rounds_that_would_lose_a_sample_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compose("stars_mapping_rounds", ["level=1", *overrides])


def test_equal_rounds_of_a_mixture_have_their_share_each() -> None:
    config = compose("stars_mapping_rounds", ["level=1", "schedule.kind=mixed", "pretrain_replay=0.3"])
    assert isinstance(config, StarsConfig)
    (mixture,) = [finetune.curriculum(config, (0, 1, 2), most_updates(config, (0, 1, 2))).mixture(0)]
    assert mixture == pytest.approx({"mapping1": 0.7, "pretrain": 0.3})


def prompts_file(folder: Path, form: str) -> Path:
    """Six pairs of the validation split of mapping1, of which the evaluation asks two."""
    task = get_task("mapping")
    items = task.generate(2, 1, "test", derive_seed("evaluation", 0)) + task.generate(4, 1, "train", 5)
    path = folder / "prompts.jsonl"
    if form == "items":
        write_items(path, items)
    else:
        write_rows(path, [*published_rows(items), {"ID": "x", "Question_A": "Draw it .", "Answer": "apple"}])
    return path


@pytest.mark.slow
@pytest.mark.parametrize("form", ["published", "items"])
def test_a_round_asks_the_prompts_of_a_file_and_says_which_are_tested(tmp_path: Path, form: str) -> None:
    path = prompts_file(tmp_path, form)
    chosen = [*QUICK, ONE, f"rounds.0.prompts_file={path}", "rounds.0.prompts=11"]
    result = fit(tmp_path, *chosen, recipe="stars_mapping")
    printed = " ".join(result.output.split())
    left = "2 beyond prompts=11" + (", 1 rows or pairs left out (reasons in" if form == "published" else "")
    assert result.exit_code == 0 and f"10 prompts are asked; not asked: {left}" in printed, result.output
    assert "mapping1: training asks 4 of 4 questions, 4 of them word for word (4 training prompts)" in printed
    run = tmp_path / "stars_mapping/level1-seed0"
    stage = run / "stages/01-sample-mapping1"
    counts = json.loads((stage / "prompts.json").read_text(encoding="utf-8"))
    assert counts["asked"] == 10 and [*counts["left_out"]] == ["x"] * (form == "published")
    assert len(counts["evaluation"][0]["same_prompt"]) == 4
    asked = [sample.sample.prompt for sample in read_folder(stage / "shards")]
    assert asked == [json.loads(line).get("prompt") or row_prompt(line) for line in path.read_text().splitlines()[:10]]

    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[2:]), encoding="utf-8")
    for stage in sorted((run / "stages").glob("0[1-9]*"), reverse=True):  # as after a kill in the midst of sampling
        shutil.rmtree(stage) if "sample" not in stage.name else (stage / "manifest.json").unlink()
    (run / "stages/01-sample-mapping1/shards/00001.parquet").unlink()
    again = fit(tmp_path, *chosen, recipe="stars_mapping")
    assert again.exit_code == 1 and "prompts.jsonl has changed since this run began" in " ".join(again.output.split())


def row_prompt(line: str) -> str:
    row = json.loads(line)
    return str(row.get("Question_A") or row.get("Question_B"))


@pytest.mark.slow
def test_distillation_asks_the_prompts_of_a_file_too(tmp_path: Path) -> None:
    write_rows(tmp_path / "sums.jsonl", published_rows(get_task("maths").generate(12, 1, "train", 3)))
    round_ = f"{{task: maths, level: 1, prompts: 8, updates: 2, prompts_file: {tmp_path}/sums.jsonl}}"
    chosen = [f"model.checkpoint={save_drawer(tmp_path / 'drawer')}", "thoughts=reference", f"rounds=[{round_}]"]
    run = finish(tmp_path, *QUICK, *chosen, recipe="distil_math")
    (counts,) = run.glob("stages/*/prompts.json")
    assert json.loads(counts.read_text(encoding="utf-8"))["asked"] == 8
    (entry,) = json.loads((run / "summary.json").read_text(encoding="utf-8"))["rounds"]
    assert (entry["sampled"], entry["kept"], entry["precision"]) == (8, 8, 1.0), "thoughts are read from the prompts"


def test_a_file_that_cannot_be_asked_ends_before_anything_runs(tmp_path: Path) -> None:
    write_rows(tmp_path / "sums.jsonl", published_rows(get_task("maths").generate(3, 1, "train", 3)))
    for file, message in (
        ("sums.jsonl", "has questions in the schema of math_1.jsonl, which is not mapping's"),
        ("none.jsonl", "rounds.0.prompts_file: there is nothing at"),
    ):
        result = fit(tmp_path, *QUICK, ONE, f"rounds.0.prompts_file={tmp_path}/{file}", recipe="stars_mapping")
        assert result.exit_code == 1 and message in " ".join(result.output.split()), result.output
        assert not (tmp_path / "stars_mapping/level1-seed0/stages").exists()
