"""The contract of rewards: sums, what does not apply, and every way to get it wrong."""

from __future__ import annotations

import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uni_train.core.errors import UsageError, UserError
from uni_train.core.registry import PluginError
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.models.batches import ModelDown
from uni_train.rewards.contract import Reward, Scoring, expect_rewarded, score
from uni_train.rewards.registry import REWARDS, find_reward, reward

IMAGES = [np.full((4, 4, 3), value, np.uint8) for value in (0, 100, 200)]
COLUMNS = {"id": ["a", "b", "c"], "wanted": [0, 100, 0]}


def near(prompts: list[str], completions: list[np.ndarray], wanted: list[int], **_: Any) -> list[float | None]:
    return [None if not w else -abs(float(i.mean()) - w) for i, w in zip(completions, wanted, strict=True)]


def asked(function: Any, weight: float = 1.0) -> Any:
    constant = Reward("one", lambda prompts, completions, **_: [1] * len(completions))
    return score([Reward("tried", function, weight), constant], ["x"] * 3, IMAGES, COLUMNS)


def test_a_mixture_is_the_weighted_sum_of_what_applies() -> None:
    found = asked(near, 2.0)
    assert found.names == ("tried", "one")
    assert np.isnan(found.each[[0, 2], 0]).all() and found.total.tolist() == [1, 1, 1]
    assert asked(lambda prompts, completions, **_: [1, 2, 3], 0.5).total.tolist() == [1.5, 2, 2.5]


def raises(**_: Any) -> list[float]:
    raise KeyError("no such column")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raises, "the reward tried raised KeyError"),
        (lambda **_: [1.0, 2.0], "returned 2 values for 3 images"),
        (lambda **_: [1.0, float("nan"), 2.0], "of the image of b is nan"),
        (lambda **_: None, "returned NoneType, not a list"),
        (lambda **_: "123", "returned str, not a list"),
        (lambda **_: ["1", 2, 3], "of the image of a is '1'"),
        (lambda **_: [1.0, 1e308, 2.0], r"of the image of b is 1e\+308"),
        (lambda **_: [1.0, 2.0, 10**400], "of the image of c is 1000"),
        (lambda **_: [1.0, 2.0, 10**9999], "of the image of c is 'int'"),
        (lambda **_: sys.exit(3), "the reward tried raised SystemExit: 3"),
        (lambda **_: (1 / zero for zero in [0]), "the reward tried raised ZeroDivisionError"),
    ],
)
def test_a_reward_that_fails_is_named(function: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        asked(function)


@pytest.fixture
def maze() -> tuple[Item, list[np.ndarray]]:
    """A maze, and its pictures: solved, and untouched."""
    task = get_task("maze", "nano")
    (item,) = task.sample(0, 4)
    return item, [task.render(item, 0), task.input_image(item)]


def test_what_one_reward_has_verified_the_next_ones_and_the_scores_have(maze: Any, monkeypatch: Any) -> None:
    item, images = maze
    seen: list[Any] = []
    verify = Maze.verify
    monkeypatch.setattr(Maze, "verify", lambda *asked: seen.append(1) or verify(*asked))
    mine = Reward("mine", lambda verdict, **_: [float(one.passed) for one in verdict])
    named = [Reward(name, find_reward(name)) for name in ("verifier", "verifier_dense")]
    found = score([*named, mine], ["", ""], images, {"item": [item, item]})
    assert len(seen) == 2, "each image once"
    assert found.each[:, 0].tolist() == found.each[:, 2].tolist() == [1.0, 0.0]
    assert [one.passed for one in found.verdicts if one is not None] == [True, False]


def test_a_reward_of_a_plug_in_goes_by_its_name() -> None:
    @reward("half_of_it")
    def half(completions: list[np.ndarray], **_: Any) -> list[float]:
        return [0.5] * len(completions)

    try:
        assert find_reward("half_of_it") is half and "half_of_it" in REWARDS.names()
        with pytest.raises(PluginError, match="a name that uni_train has taken"):
            reward("judge")(half)
    finally:
        REWARDS._entries.pop("half_of_it")


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("\n\ndef mine(prompts, **_):\n    prompts[9]\n", "IndexError: .*", "4: prompts[9]"),
        ("def mine(:\n", "SyntaxError: .*", "1: def mine(:"),
        ("import sys\n\nsys.exit(0)\n", "SystemExit: 0 ", "3: sys.exit(0)"),
    ],
)
def test_an_error_in_a_reward_of_ones_own_shows_its_line(text: str, said: str, line: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UserError, match=rf"{said}\({re.escape(f'{file}, line {line}')}\)"):
        asked(find_reward(f"{file}:mine"))


def test_too_many_images_without_any_reward_are_an_error() -> None:
    near_ = Reward("near", near)
    with pytest.raises(UserError, match="no reward applies to 2 of 3 images, the first of a: near returned None"):
        expect_rewarded([near_], score([near_], ["x"] * 3, IMAGES, COLUMNS).each, "abc")
    expect_rewarded([near_], np.array([[np.nan], [1.0], [0.0]]), "abc")


def test_what_failed_counts_as_its_group_does_on_average() -> None:
    values = [None, 0.1, 0.1, 0.0, 1.0, None, None, None, None]
    other = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0]
    given = [Reward(name, lambda v=v, **_: v, w) for name, v, w in (("judge", values, 1.0), ("other", other, 2.0))]
    found = score(given, ["x"] * 9, IMAGES * 3, {}, group_size=3)
    assert found.filled[:, 0].tolist() == [0.1, 0.1, 0.1, 0.0, 1.0, 0.5, 0.0, 0.0, 0.0], "equal ones exactly so"
    assert found.total.tolist() == [2.1, 0.1, 0.1, 0.0, 1.0, 0.5, 4.0, 0.0, 0.0]
    assert np.isnan(found.each[:, 0]).sum() == 5


def test_the_verifier_rewards_the_solved_maze_and_the_dense_one_what_is_nearly_so(maze: Any) -> None:
    item, images = maze
    exact, dense = find_reward("verifier"), find_reward("verifier_dense")
    asked = {"prompts": ["", ""], "completions": images}
    assert [one.value for one in exact(**asked, item=[item, item])] == [1.0, 0.0]
    solved, untouched = dense(**asked, item=[item, item])
    assert 0 <= untouched.value < solved.value <= 1
    assert solved.verdict.passed and untouched.verdict.reason.startswith("there is no red path")
    nothing, wrong = exact(**asked, item=[None, item])
    assert nothing is None and wrong.value == 0
    for columns in ({}, {"item": [None, None]}):
        with pytest.raises(UserError, match="the prompts are of no task that it knows"):
            exact(**asked, **columns)


def test_rewards_are_found_by_name_module_and_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def good(prompts, completions, **columns):\n    return [0.5] * len(completions)\n")
    assert find_reward(f"{file}:good")(prompts=["a"], completions=[1]) == [0.5]
    assert find_reward("uni_train.rewards.verifier:dense") is find_reward("verifier_dense")
    for name, error, said in (
        (f"{file}:bad", UsageError, "has no function bad"),
        ("verifer", UsageError, "there is no reward verifer"),
        ("no.such.module:f", UserError, r"cannot be imported: ModuleNotFoundError: No module named 'no'\n"),
    ):
        with pytest.raises(error, match=said):
            find_reward(name)


def test_rewards_written_for_trl_work_unless_they_need_its_trainer(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "async def slow(prompts, log_metric=None, **columns):\n    return [float(log_metric is None)] * 3\n"
        "def needs(completions, log_extra, **columns):\n    return [0.0] * 3\n"
    )
    assert asked(find_reward(f"{file}:slow")).each[:, 0].tolist() == [1, 1, 1]
    with pytest.raises(UsageError, match=r"the reward \S+mine.py:needs needs log_extra, which only trl's") as error:
        find_reward(f"{file}:needs")
    assert "log_extra=None" in (error.value.hint or "")


# --- asked apart ------------------------------------------------------------------------------------------------------


def in_parts(function: Any, patience: float = 300.0, then: Any = lambda: None) -> Any:
    """A reward asked apart, beside a constant one, about one picture after the other; `then` before the last."""
    constant = Reward("one", lambda prompts, completions, **_: [1] * len(completions))
    with Scoring([Reward("far", function, patience=patience), constant]) as scoring:
        for i, image in enumerate(IMAGES):
            if i == 2:
                then()
            scoring.add(["x"], [image], {name: values[i : i + 1] for name, values in COLUMNS.items()})
        return scoring.scores()


def test_what_is_asked_apart_is_answered_while_pictures_are_drawn_and_worth_the_same() -> None:
    asked, drawn = [], threading.Event()

    def slow(prompts: list[str], completions: list[np.ndarray], **columns: Any) -> list[float | None]:
        asked.append(columns["id"])
        assert drawn.wait(200)  # never set, if the first question held up the drawing
        return near(prompts, completions, **columns)

    found = in_parts(slow, then=drawn.set)
    assert asked == [["a"], ["b"], ["c"]]
    whole = score([Reward("far", near)], ["x"] * 3, IMAGES, COLUMNS | {"wanted": [9, 100, 9]})
    assert found.each[1, 0] == whole.each[1, 0] and np.isnan(found.each[[0, 2], 0]).all()
    assert found.total.tolist() == [1, 1, 1]


def test_one_that_does_not_come_back_is_an_error_and_holds_up_nothing() -> None:
    never = threading.Event()
    with pytest.raises(UserError, match=r"the reward far lacks 3 of 3 images 0\.05 s after the last") as error:
        in_parts(lambda **_: never.wait(), patience=0.05)
    assert "rewards.far.patience" in (error.value.hint or "")
    never.set()


def test_a_failure_elsewhere_is_seen_before_all_is_drawn() -> None:
    def broken(**_: Any) -> list[float]:
        failed.set()
        raise KeyError("no such column")

    failed, until = threading.Event(), time.monotonic() + 200
    with (
        Scoring([Reward("far", broken, patience=300.0)]) as scoring,
        pytest.raises(UserError, match="the reward far raised KeyError"),
    ):
        while time.monotonic() < until:
            scoring.add(["x"], IMAGES[:1], {"id": ["a"]})
            failed.wait(0.01)


def test_a_judge_that_is_away_for_a_moment_leaves_gaps_and_one_that_stays_away_ends_the_run() -> None:
    def away(prompts: list[str], completions: list[np.ndarray], **columns: Any) -> list[float]:
        if columns["id"] != ["b"]:
            raise ModelDown("nobody there")
        return [0.5]

    assert in_parts(away).each[:, 0] == pytest.approx([np.nan, 0.5, np.nan], nan_ok=True)
    with pytest.raises(ModelDown):
        in_parts(lambda **_: (_ for _ in ()).throw(ModelDown("nobody there")))
