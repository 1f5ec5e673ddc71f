"""What is asked about items of every task, and what texts say of their answers."""

from __future__ import annotations

import pytest

from uni_train.core.errors import DataError
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.eval.task_benchmark import cases_of_task, item_of
from uni_train.insight.questions import concludes, plainly, says


@pytest.mark.parametrize("world", ["nano", "everyday"])
@pytest.mark.parametrize("task", TASKS.names())
def test_the_exact_thought_concludes_and_the_answer_is_said(task: str, world: str) -> None:
    cases = cases_of_task(task, n=7 if task == "ureason" else 2, world=world)
    assert len({case.id for case in cases}) == len(cases) and {case.set for case in cases}
    items = [item_of(case) for case in cases]
    thought = {concludes(item, item.thought) for item in items}
    # How attributes and crowded scenes are worded is for a judge.
    assert thought == {"pass"} or (task == "ureason" and world == "everyday" and thought == {"pass", "unreadable"})
    if task != "ureason":  # its answers are criteria, which nobody says
        assert {says(item, item.answer) for item in items} == {"pass"}
    assert bool(cases[0].images) == (get_task(task, world).input_image(items[0]) is not None)


@pytest.mark.parametrize("task", ["maths", "mapping", "ureason"])
def test_another_items_thought_and_answer_are_wrong(task: str) -> None:
    items = [item_of(case) for case in cases_of_task(task, (2,), 6)]
    for item in items:
        other = next(one for one in items if one.thought.rpartition("draw")[2] != item.thought.rpartition("draw")[2])
        assert concludes(item, other.thought) == "fail"
        assert concludes(item, "I do not know .") == "unreadable"
        assert says(item, "") == "unreadable" or task == "ureason"


def test_what_a_model_is_told_plainly() -> None:
    def told(task: str, world: str) -> str:
        return plainly(item_of(cases_of_task(task, n=1, world=world)[0]))

    assert told("mapping", "nano").split()[:2] == ["Draw", "1"]
    assert told("maths", "everyday").startswith("Draw ") and "So" not in told("maths", "everyday")
    assert "refined prompt" not in told("ureason", "everyday") and "Code" not in told("ureason", "everyday")
    assert "From S go" in told("maze", "everyday")  # no short form: the question with its exact steps
    with pytest.raises(DataError, match="mapping has no level 9"):
        cases_of_task("mapping", (9,))
