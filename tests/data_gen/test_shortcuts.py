"""No set that we make can be answered by a trivial strategy; and the strategies find the shortcuts that there are."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from uni_train.data_gen.audit import tally_file
from uni_train.data_gen.jsonl import published_rows, write_items, write_rows
from uni_train.data_gen.mapping.task import Mapping
from uni_train.data_gen.maths.shortcuts import numbers
from uni_train.data_gen.maths.task import Maths
from uni_train.data_gen.objects import get_world
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.shortcuts import LOOK_UP, known_shortcuts, questions_of
from uni_train.data_gen.task import Task
from uni_train.eval.shortcuts import Trivial, best, trivial

STRATEGIES = (*Maths.strategies, *Mapping.strategies)
NANO = "7 means star . A means 7 . B means 9 . 9 means cup . Draw what A means ."
CHAIN = (
    "Rule 1: 'B' maps to 9. Rule 2: 9 means cups. Rule 3: The letter A is @. Rule 4: The symbol @ denotes teddy bears."
)


def test_what_a_strategy_answers() -> None:
    answers = {strategy.name: strategy.answer for strategy in STRATEGIES}
    letter, quoted = (f"{CHAIN} Please generate the toy represented by {who}." for who in ("the letter A", "'B'"))
    for name, prompt, answer in (
        ("first number", "Draw as many owls as ( 4 + 2 ) / 3 .", 4),
        ("second number", "Draw as many owls as √9.", None),
        ("last number", "Draw as many owls as √(M² + 9) where M = 1.", 1),
        ("largest number", "Draw as many owls as 4 + 20 % 3.", 6),  # clipped: nobody asks for more
        ("number of operands", "Draw as many owls as twenty-one minus three times four.", 3),
        ("difference of the first two", "Draw as many owls as 5 % 8 + 1.", 3),
        ("first noun after the symbol", NANO, "cup"),
        ("last noun before the symbol", NANO, "star"),
        ("noun nearest to the symbol", NANO, "star"),
        ("first noun after the symbol", letter, "teddy bears"),
        ("last noun before the symbol", quoted, None),
        ("last noun after the symbol", quoted, "teddy bears"),
        ("first noun", "Draw something.", None),
    ):
        assert answers[name](prompt) == answer, name
    assert numbers("the square root of 16 plus twenty-one minus two, then ten Someone") == [16, 21, 2, 10]


def test_the_coin_is_tossed_between_the_chain_ends_alone() -> None:
    (coin,) = (one for one in STRATEGIES if one.name.startswith("coin"))
    rules = "! means moon . 7 means star . A means 7 . & means key . B means 9 . 9 means cup ."
    assert {coin.answer(f"{rules} Draw what {symbol} means .") for symbol in "AB79!&"} == {"star", "cup"}


def found(task: Task, level: int, split: str, n: int) -> list[Trivial]:
    return trivial(questions_of(task.generate(n, level, split, seed=11)), known_shortcuts(task, level))


@pytest.mark.parametrize("world", ["nano", "everyday"])
def test_rules_in_chain_order_are_found_out(world: str) -> None:
    task = Mapping(get_world(world), distractors=0, shuffle=False)
    by_name = {one.name: one for one in trivial(questions_of(task.generate(100, 2, "test", seed=11)))}
    caught = by_name["first noun after the symbol"]
    assert caught.estimate.value is not None and caught.estimate.value >= 0.95 and caught.beats_chance
    assert not by_name["coin between chain ends"].beats_chance


@pytest.mark.parametrize(("world", "level"), [("nano", 1), ("nano", 2), ("everyday", 3)])
def test_no_strategy_answers_our_mapping(world: str, level: int) -> None:
    results = found(get_task("mapping", world), level, "test", 600)
    assert [str(one.estimate) + one.name for one in results if one.beats_chance] == []
    # One link is a look-up: the rule that names the symbol names the object. Only there is a strategy the task itself.
    assert any(one.note == LOOK_UP and one.estimate.value == 1.0 for one in results) == (level == 1)
    leading = best(results)
    assert leading is not None and leading.estimate.value is not None and leading.estimate.value < 0.35


@pytest.mark.parametrize(
    ("world", "level", "split", "n"),
    [("nano", 1, "seen", 100), ("everyday", 1, "test", 300), ("nano", 2, "test", 500), ("everyday", 3, "seen", 900)],
)
def test_no_strategy_answers_our_maths(world: str, level: int, split: str, n: int) -> None:
    """But those that the task states in `known_shortcuts`, with the reason."""
    results = found(get_task("maths", world), level, split, n)
    assert [f"{one.name} {one.estimate}" for one in results if one.beats_chance] == []


def test_a_shortcut_that_the_task_states_is_no_finding() -> None:
    questions = questions_of(Mapping(distractors=0, shuffle=False).generate(40, 2, "test", seed=3))
    why = {"first noun after the symbol": "rules in chain order", "next chain end": "the same"}
    noted = {one.name: one for one in trivial(questions, why)}["first noun after the symbol"]
    assert noted.estimate.value == 1.0 and not noted.beats_chance and noted.note == "rules in chain order"
    shown = best(trivial(questions, why))
    assert shown is not None and shown.estimate.value == 1.0  # it is still what stands beside a score

    class Stated(Mapping):
        known_shortcuts: ClassVar = {"first noun": "always", "last noun (level 2)": "sometimes"}

    assert known_shortcuts(Stated(), 2) == {"first noun": "always", "last noun": "sometimes"}
    assert known_shortcuts(Stated(), 3) == {"first noun": "always"}


def test_files_are_read_in_both_forms(tmp_path: Path) -> None:
    items = Mapping(distractors=0, shuffle=False).generate(20, 2, "test", seed=1)
    write_items(tmp_path / "items.jsonl", items)
    rows = list(published_rows(items))
    write_rows(tmp_path / "mapping2.jsonl", rows)
    ((name, ours),) = tally_file(tmp_path / "items.jsonl").items()
    ((_, published),) = tally_file(tmp_path / "mapping2.jsonl").items()
    assert name == "mapping level 2"
    assert [(one.name, one.right) for one in ours] == [(one.name, one.right) for one in published]
    write_rows(tmp_path / "half.jsonl", [row for row in rows if "Question_A" in row])
    assert not any(any(one.right) for one in tally_file(tmp_path / "half.jsonl")["mapping"])  # no pair is whole

    asked = (("owls", "4 - 1", "3 owls"), ("cats", "4 - 1", "3 cats"), ("owls", "you like", "some owls"))
    maths = [{"Question": f"Draw as many {a} as {b}.", "Answer": answer, "id": a + b} for a, b, answer in asked]
    write_rows(tmp_path / "math.jsonl", maths)
    difference = {one.name: one for one in tally_file(tmp_path / "math.jsonl")["maths"]}["difference of the first two"]
    assert difference.right == (True, True, False)
    assert len(set(difference.clusters)) == 2  # one expression is asked twice
    for others in (get_task("maze"), get_task("ureason", "everyday")):
        write_items(tmp_path / "others.jsonl", others.generate(12, 3, "test", 0))
        assert tally_file(tmp_path / "others.jsonl") == {}
