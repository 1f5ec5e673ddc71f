from __future__ import annotations

import pytest

from uni_train.data_gen.objects import NANO
from uni_train.data_gen.registry import get_task
from uni_train.eval.benchmark import Case
from uni_train.eval.sets.thoughts import answer_status, conclusion

RULES = (
    "Rule 1: The symbol @ represents apples. Rule 2: The symbol * represents bananas. "
    "Please generate the fruit represented by the symbol @."
)
OLD = "An elderly Caucasian woman with white hair."


@pytest.mark.parametrize(
    ("about", "answer", "thought", "expected"),
    [
        ("maths", "4 chairs", "8 / 2 is 4. So I will draw four chairs around a table.", "right"),
        ("maths", "4 chairs", "8 / 2 = 4. The scene shows 5 wooden chairs.", "wrong"),
        ("maths", "4 chairs", "There are 8 chairs, and half of them leave. That leaves 4 chairs.", "right"),
        ("maths", "4 chairs", "First 8 / 2, which equals 4.", "right"),
        ("maths", "4 chairs", "I imagine four wooden chairs around a table. One chair is pushed back.", "right"),
        ("maths", "4 chairs", "The answer is 4. One chair stands in a room.", "wrong"),
        ("maths", "4 chairs", "First 8 / 2, the result is 3.", "wrong"),
        ("maths", "4 chairs", "A row of chairs in a sunny room.", "unclear"),
        ("maths", "4 chairs", "", "unclear"),
        ("mapping", "Apples", "@ represents apples and * represents bananas. So I draw a red apple.", "right"),
        ("mapping", "Apples", "@ represents apples and * represents bananas. So I draw bananas.", "wrong"),
        ("mapping", "Apples", "The rules name apples and bananas. The picture shows apples, not bananas.", "right"),
        ("mapping", "Apples", "The picture shows apples and bananas.", "unclear"),
        ("mapping", "Apples", "A bowl of fruit.", "unclear"),
        ("fruit", "strawberries", "Kaelo likes berries. Her favorite fruit is the strawberry.", "right"),
        ("fruit", "watermelon", "Her favorite fruit is watermelon.", "right"),
        ("flower", "rose", "Her favorite flower is the tulip.", "wrong"),
        ("flower", "rose", "A field of flowers.", "unclear"),
        ("portrait", OLD, "She is old, Caucasian, and her hair is gray.", "right"),
        ("portrait", OLD, "An old Caucasian man with white hair.", "wrong"),
        ("portrait", OLD, "An old woman with white hair.", "unclear"),
    ],
)
def test_conclusions_in_plain_english(about: str, answer: str, thought: str, expected: str) -> None:
    task, kind = (about, "") if about in ("maths", "mapping") else ("knowledge", about)
    facts = {"task": task, "world": "everyday", "answer": answer, "kind": kind}
    assert conclusion(thought, Case("x", "x", RULES, facts=facts)) == expected


@pytest.mark.parametrize("name", ["maths", "mapping"])
def test_the_reference_thoughts_of_both_worlds_are_right_and_those_of_others_are_not(name: str) -> None:
    for world in ("nano", "everyday"):
        items = get_task(name, world).generate(20, 2, "test", 0)
        for item, other in zip(items, items[1:] + items[:1], strict=True):
            asked = Case(item.id, "x", item.prompt, facts={
                "task": name, "world": world, "answer": item.answer, "item": item.to_dict()})  # fmt: skip
            assert conclusion(item.thought, asked) == "right", item
            if item.facts["object"] != other.facts["object"] and (world == "nano" or name == "mapping"):
                assert conclusion(other.thought, asked) != "right", (item, other)


@pytest.mark.parametrize("task", ["maths", "mapping"])
def test_a_direct_answer_in_nanos_words_is_read_for_every_item(task: str) -> None:
    for item in get_task(task, "nano").generate(60, 2, "test", 0):
        right = NANO.noun(item.facts["object"]).counted(item.facts["count"])
        other = NANO.noun(item.facts["object"]).counted(item.facts["count"] + 1)
        if task == "mapping":
            other = NANO.noun(item.facts["other"]).counted(1)
        assert (answer_status(right, item), answer_status(other, item)) == ("pass", "fail")


@pytest.mark.parametrize(
    ("reply", "status"),
    [("{n}", "pass"), ("The answer is {n}.", "pass"), ("**{n}**", "pass"), ("<answer>{n}</answer>", "pass"),
     ("\\boxed{{{n}}}", "pass"), ("<think>9</think>{n}", "pass"),
     ("`{n}`", "pass"), ("{n} {noun}", "pass"), ("9", "fail"), ("chairs", "unreadable"),
     ("1" * 5000, "unreadable")],  # Python reads no such number
)  # fmt: skip
def test_direct_answers_in_plain_english(reply: str, status: str) -> None:
    (item,) = get_task("maths", "everyday").generate(1, 1, "test", 0)
    text = reply.format(n=item.facts["count"], noun=item.facts["plural"])
    assert answer_status(text, item) == status


def test_a_named_object_must_be_the_asked_one_and_alone() -> None:
    item, _ = get_task("mapping", "everyday").generate(1, 2, "test", 0)
    asked, other = item.facts["object"], item.facts["other"]
    assert answer_status(f"It stands for the {asked}.", item) == "pass"
    assert answer_status(f"A {other}, I think.", item) == "fail"
    assert answer_status(f"Either a {asked} or a {other}", item) == "unreadable"
