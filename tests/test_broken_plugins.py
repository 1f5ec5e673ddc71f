"""Plug-ins that fail: one error with the line of theirs, before anything is trained, and never silence."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click
import numpy as np
import pytest

from tests.tiny import QUICK, fit
from uni_train.console.failures import as_user_error
from uni_train.core.errors import DataError
from uni_train.core.registry import PluginError, load_plugins
from uni_train.core.seeds import digest
from uni_train.data_gen import task as tasks
from uni_train.data_gen.registry import TASKS
from uni_train.data_gen.sprite_task import SpriteTask
from uni_train.data_gen.task import Item, Verdict
from uni_train.recipes.stars.filters import FILTERS

HERE = str(Path(__file__))


class Trees(SpriteTask):
    """Draw so many trees."""

    name = "trees"
    levels = (1,)
    sets: ClassVar = {1: "trees1"}

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        facts = {"world": "nano", "object": "tree", "plural": "trees", "count": 1 + seed % 6, "canonical": str(seed)}
        return (Item(f"trees1/{split}/{digest(str(seed))}", "trees", 1, split, f"Draw {seed}.", "trees", facts, "."),)


def broken(method: str, function: Callable[..., Any], kind: type[SpriteTask] = Trees) -> type[SpriteTask]:
    return type("Trees", (kind,), {"name": "trees", "levels": (1,), method: function})


@pytest.fixture
def registered() -> Iterator[Callable[[type[SpriteTask]], None]]:
    yield lambda kind: TASKS.register("trees")(kind) and None
    TASKS._entries.pop("trees", None)


def raises(*_: Any) -> Any:
    raise KeyError("apples")


def leaves(*_: Any) -> Any:
    sys.exit(0)


def verdict_or_words(task: Trees, item: Item, image: np.ndarray) -> Any:
    return SpriteTask.verify(task, item, image) if image.any() else "nothing is drawn"


@pytest.mark.parametrize(
    ("method", "function", "said"),
    [
        ("problem", lambda *_: None, "problem returned NoneType, not a Problem"),
        ("sample", lambda *_: (), r"the task trees: sample returned \(\), not a tuple of one Item or more"),
        ("render", lambda *_: np.zeros((4, 4, 3)), r"render returned ndarray, not an image, uint8 \[H, W, 3\]"),
        ("verify", lambda *_: "right", "verify returned right, not a Verdict"),
        ("verify", verdict_or_words, "verify returned nothing is drawn, not a Verdict"),
    ],
)
def test_what_a_task_returns_is_checked_before_it_is_used(method: str, function: Any, said: str) -> None:
    with pytest.raises(DataError, match=rf"{said}.* \({HERE}, line \d+: .*\)"):
        broken(method, function, SpriteTask if method == "problem" else Trees)().generate(2, 1, "train", 0)


def test_the_verifier_must_accept_the_truth() -> None:
    Trees().validate(1)
    with pytest.raises(DataError, match="verify rejects the image that render draws of trees1/train/"):
        broken("render", lambda *_: np.zeros((24, 24, 3), np.uint8))().validate(1)
    with pytest.raises(DataError, match="trees has no level 2"):
        Trees().validate(2)


def test_a_sampler_that_finds_nothing_is_told_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PATIENCE", 1.0)
    end = threading.Event()

    def sample(*_: Any) -> tuple[Item, ...]:
        while not end.wait(0.01):
            pass
        return ()

    try:
        with pytest.raises(DataError, match=rf"gave no item in 1 s \({HERE}, line \d+: while not end"):
            broken("sample", sample)().generate(2, 1, "train", 0)
    finally:
        end.set()


@pytest.mark.parametrize(
    ("method", "function", "said", "where"),
    [
        ("verify", raises, "error: KeyError: 'apples' ({}, line {}: raise KeyError", "rounds"),
        ("render", leaves, "error: SystemExit: 0 ({}, line {}: sys.exit(0)", "sets"),
        ("verify", lambda *_: Verdict(()), "error: the task trees: verify rejects the image", "rounds"),
    ],
)
def test_fit_refuses_a_broken_task_before_its_first_stage(
    registered: Callable[[type[SpriteTask]], None], tmp_path: Path, method: str, function: Any, said: str, where: str
) -> None:
    registered(broken(method, function))
    given = {"rounds": "rounds=[{task:trees,level:1,prompts:8,updates:2}]", "sets": "evaluation.sets=[trees1]"}
    ended = fit(tmp_path, *QUICK, given[where])
    line = function.__code__.co_firstlineno + 1
    assert (ended.exit_code, said.format(HERE, line) in ended.stderr) == (1, True), ended.output
    assert not list(tmp_path.iterdir())


def test_a_filter_or_reward_that_fails_is_one_error_with_its_line(tmp_path: Path) -> None:
    for function, said in (
        (raises, f"error: KeyError: 'apples' ({HERE}, line {raises.__code__.co_firstlineno + 1}: raise KeyError"),
        (lambda samples, asking: ["yes"] * len(samples), "error: filter=mine returned str, not a list of verdicts"),
    ):
        FILTERS.register("mine")(function)
        try:
            ended = fit(tmp_path, *QUICK, "filter=mine")
        finally:
            FILTERS._entries.pop("mine")
        assert (ended.exit_code, said in ended.stderr) == (1, True), ended.output
    file = tmp_path / "mine.py"
    file.write_text("def mine(prompts, completions, **columns):\n    return [columns['mood'][0]]\n")
    ended = fit(tmp_path / "out", *QUICK[:14], f"rewards.mine.function={file}:mine", recipe="flow_grpo_math")
    assert ended.exit_code == 1 and not (tmp_path / "out").exists(), "the reward is called before the first stage"
    assert f"the reward mine raised KeyError: 'mood' ({file}, line 2: return [columns" in ended.stderr


HALF = "from uni_train.data_gen.registry import task\n@task('half')\nclass Half:\n    name, levels = 'half', (1,)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit(0)\n", r"the plug-in bad \(.*\) cannot be imported: SystemExit: 0 \(.*, line 2: "),
        (HALF, r'bad \(bad\): the task "half" has no sample, render, verify'),
    ],
)
def test_a_module_that_cannot_be_used_is_named(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other reasons are in tests/core/test_registry.py."""
    (tmp_path / "bad.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=said):
        load_plugins(["bad"])


def shown(end: Callable[[], object]) -> object:
    try:
        end()
    except (SystemExit, KeyError) as error:
        return as_user_error(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
    raise AssertionError


@pytest.mark.parametrize("replaced", [False, True])
def test_an_exit_is_a_plug_ins_error_only_where_its_own_line_raises_it(
    replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if replaced:  # as W&B does
        monkeypatch.setattr(sys, "exit", sys.exit)
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)
        pytest.importorskip("wandb.sdk.lib.exit_hooks").ExitHooks().hook()
    assert "SystemExit: 0" in str(shown(leaves)) and "SystemExit: 3" in str(shown(lambda: exit(3)))
    assert shown(lambda: click.Command("x").main([], standalone_mode=True)) is None
    assert shown(partial(Item.from_dict, {})) is None, "an error of ours keeps its traceback"
