"""What `fit` does before its first stage: processes, the run folder, servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from uni_train import fitting
from uni_train.cli.main import uni_train
from uni_train.config import paths
from uni_train.config.compose import compose
from uni_train.config.kinds import judge_of
from uni_train.core.errors import UserError
from uni_train.run_folder import RunFolder
from uni_train.stages import cpu


@pytest.mark.parametrize(
    ("given", "cores", "limit", "quota", "memory", "processes"),
    [
        ("", 2, "", "max", 24, 2),
        ("", 1, "", "max", 24, 1),
        ("", 64, "", "max", 240, fitting.MOST_PROCESSES),
        ("", 4, "3", "max", 24, 3),
        ("", 4, "", "200000", 24, 2),
        ("", 4, "", "50000", 24, 1),
        ("", 4, "", "max", 3, 2),
        ("", 4, "", "max", 2, 1),
        ("batch.prompts=3", 4, "", "max", 24, 3),
        ("model.threads=1", 4, "", "max", 24, 1),
        ("strategy.all_cores=false", 4, "", "max", 24, 1),
        ("strategy.devices=3", 2, "", "max", 24, 3),
        ("model=bagel_7b", 4, "", "max", 24, 1),
    ],
)
def test_a_recipe_of_nano_takes_a_process_for_each_core_that_it_may_use(
    given: str, cores: int, limit: str, quota: str, memory: int, processes: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "cpu.max").write_text(f"{quota} 100000")
    monkeypatch.setattr(cpu, "_CGROUP", tmp_path / "cpu.max")
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(cpu, "memory", lambda: memory * 2**30)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    config = compose("stars_curriculum", ["strategy.accelerator=cpu", *given.split()])
    assert fitting._processes(config) == processes


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("strategy=deepspeed_zero2", "strategy=deepspeed_zero2 needs deepspeed"),
        ("trained=lora model.weights=nf4", "trained=lora needs peft"),
        ("optimizer.state=8bit", "optimizer.state=8bit needs torchao"),
    ],
)
def test_a_package_that_training_needs_is_told_before_the_first_stage(
    keys: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "find_spec", lambda name: None)
    command = ["fit", "stars_math", f"out={tmp_path / 'runs'}", *keys.split()]
    refused = CliRunner().invoke(uni_train, command)
    assert refused.exit_code == 1 and said in refused.output and not (tmp_path / "runs").exists(), refused.output
    told = CliRunner().invoke(uni_train, [*command, "--dry-run"])
    assert told.exit_code == 0 and f"missing: {said}" in told.output, told.output


def test_runs_of_two_models_lie_side_by_side_and_an_old_one_is_told_by_its_model(tmp_path: Path) -> None:
    recipe = "stars_curriculum"
    own, other = compose(recipe), compose(recipe, ["model=bagel_7b"])
    assert other.run_name == f"bagel_7b-{own.run_name}" and compose(recipe, ["model=nano"]) == own
    assert compose(recipe, ["model=bagel_7b", "name=mine"]).run_name == "mine"
    with RunFolder(tmp_path, recipe, "mine") as run:
        run.begin(own)
        run.write_manifest(0, "evaluate", key="", seconds=0.0)
        with pytest.raises(UserError, match=r"configuration: model.name was nano, now bagel_7b\n"):
            run.begin(other)


def test_images_that_no_program_can_read_have_a_judge() -> None:
    assert judge_of(compose("stars_curriculum")) is None
    assert judge_of(compose("stars_curriculum", ["model=bagel_7b"])) is not None


@pytest.mark.parametrize(
    ("recipe", "given", "server"),
    [
        ("stars_curriculum", "filter=judge judge.model=http://127.0.0.1:1/v1#j judge.retries=0", "judge"),
        ("unigrpo_math", "rewards.a={function:judge,judge:{model:'http://127.0.0.1:1/v1#j',retries:0}}", "rewards.a"),
    ],
)
def test_servers_that_a_run_asks_are_named_by_its_dry_run_and_asked_before_the_first_stage(
    recipe: str, given: str, server: str, tmp_path: Path
) -> None:
    command = ["fit", recipe, *given.split(), f"out={tmp_path}"]
    printed = CliRunner().invoke(uni_train, [*command, "--dry-run"], catch_exceptions=False)
    assert f"must answer before the first stage: {server}: http://127.0.0.1:1/" in printed.output
    ended = CliRunner().invoke(uni_train, command, catch_exceptions=False)
    assert ended.exit_code == 1 and "127.0.0.1:1" in ended.output
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("stored", ["a folder", "a file", "another model"])
def test_a_checkpoint_of_something_else_is_said_by_the_dry_run_and_refused_before_any_process_starts(
    stored: str, tmp_path: Path
) -> None:
    place = tmp_path / "stored"
    if stored == "a file":
        place.write_text("no weights")
    else:
        place.mkdir()
        (place / ("model_index.json" if stored == "another model" else "notes.txt")).write_text("{}")
    commands = [[recipe, f"model.checkpoint={place}"] for recipe in ("sft_maze", "stars_curriculum", "flow_grpo_maze")]
    commands[0].append(f"sources.mazes.path={tmp_path}")
    commands.append(["stars_curriculum", "filter=judge", f"judge.checkpoint={place}"])
    for words in commands:
        command = ["fit", *words, f"out={tmp_path / 'out'}"]
        said = " ".join(CliRunner().invoke(uni_train, [*command, "--dry-run"], catch_exceptions=False).output.split())
        wrong = rf"model.checkpoint: model=\w+ cannot be loaded from {place}: it is a |judge.checkpoint: {place} is a "
        assert re.search(f"missing: ({wrong})", said), said
        refused = CliRunner().invoke(uni_train, command, catch_exceptions=False)
        assert refused.exit_code == 1 and re.search(wrong, " ".join(refused.output.split())), refused.output
    assert not (tmp_path / "out").exists()
