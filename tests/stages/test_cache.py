"""Answers of dry runs and plans are kept: the same while nothing changes, and made anew for every change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.core.cache import cache_folder
from uni_train.core.errors import UserError
from uni_train.plan.result import OneCardChoice
from uni_train.stages import cache
from uni_train.stages.cache import cached

DRY = """import sys
from uni_train.cli.main import uni_train
try: uni_train(["fit", "flow_grpo_math", "--dry-run"])
finally: print("torch" in sys.modules, file=sys.stderr)"""


def counted() -> Callable[[], list[int]]:
    """Answers with how often it was asked."""
    numbers = count(1)
    return lambda: [next(numbers)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNI_TRAIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_second_dry_run_prints_the_same_and_imports_no_torch(folder: Path) -> None:
    """In two fresh processes: what this one has registered would be part of the question."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    first, again = (
        subprocess.run([sys.executable, "-c", DRY], capture_output=True, text=True, env=environment, check=True)
        for _ in range(2)
    )
    assert "one epoch: " in first.stdout and again.stdout == first.stdout
    assert (first.stderr, again.stderr) == ("True\n", "False\n")


def test_a_second_plan_prints_the_same_and_follows_no_update(folder: Path) -> None:
    command = ["plan", "--recipe", "stars_math", "--gpus", "2", "--json"]
    first, again = (CliRunner().invoke(uni_train, command, catch_exceptions=False) for _ in range(2))
    assert "following one update" in first.stderr and again.stderr == ""
    assert again.stdout == first.stdout and json.loads(again.stdout)["gpus"] == 2
    table = CliRunner().invoke(uni_train, [*command[:-1], "--price", "2"], catch_exceptions=False)
    assert table.stderr == "" and "deepspeed_zero3 + offload_optimizer" in table.stdout
    ways = (OneCardChoice("trained=lora", 2**34, 0),)
    assert [cached(tuple[OneCardChoice, ...], compose("sft_nano"), [], lambda: ways) for _ in range(2)] == [ways, ways]


def test_an_answer_counts_until_the_configuration_a_file_or_the_machine_changes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, asked = tmp_path / "rows" / "rows.jsonl", counted()
    rows.parent.mkdir()
    rows.write_text("{}\n")
    config = compose("sft_nano", [f"sources=[{rows}]"])

    def answer(about: str = "a", seed: int = 0) -> int:
        return cached(list[int], replace(config, seed=seed), [about], asked)[0]

    assert [answer(), answer(), answer(seed=7), answer("b"), answer()] == [1, 1, 2, 3, 1]
    rows.write_text("{}\n{}\n")
    assert [answer(), answer()] == [4, 4]
    (rows.parent / "image.png").write_bytes(b"")  # that a row may name
    assert [answer(), answer()] == [5, 5]
    (rows.parent / "images").mkdir()
    assert [answer(), answer()] == [6, 6]
    monkeypatch.setattr(cache, "memory", lambda: 2**30)
    assert [answer(), answer()] == [7, 7]
    monkeypatch.setattr(cache, "FILES", 3)
    assert [answer(), answer()] == [8, 9]


def test_errors_are_not_kept_and_damaged_answers_are_made_anew(folder: Path) -> None:
    config, asked, file = compose("sft_nano"), counted(), folder / "plans.json"

    def refused() -> list[int]:
        raise UserError("no rows")

    with pytest.raises(UserError, match="no rows"):
        cached(list[int], config, [], refused)
    assert cached(list[int], config, [], asked) == [1]
    texts = ("{", "[]", json.dumps(dict.fromkeys(json.loads(file.read_text()), "text")))
    for number, damaged in enumerate(texts, start=2):
        file.write_text(damaged)
        assert cached(list[int], config, [], asked) == cached(list[int], config, [], asked) == [number]


def test_the_newest_answers_are_kept_and_an_empty_variable_keeps_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "ANSWERS", 3)
    config, asked = compose("sft_nano"), counted()
    answers = [cached(list[int], config, [number], asked) for number in (0, 1, 2, 3, 3, 0)]
    assert answers == [[1], [2], [3], [4], [4], [5]] and len(json.loads((folder / "plans.json").read_text())) == 3
    monkeypatch.setenv("UNI_TRAIN_CACHE", "")
    assert cached(list[int], config, [0], asked) == [6]


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number of its own."""
    for name in ("HOME", "XDG_CACHE_HOME", "UNI_TRAIN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    assert cache_folder() is None and cached(list[int], compose("sft_nano"), [], counted()) == [1]
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/uni_train")
