from __future__ import annotations

import pytest

from uni_train.eval.prompts import unisandbox as prompts


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Three apples, as asked.\nFinal Answer: YES", True),
        ("Final Answer: NO\n\n", False),
        ("The count is wrong.\n**Final Answer: NO**", False),
        ("**Final Answer:** YES.", True),
        ("Final Answer: YES\nBecause the image is clear.", None),  # not at the end
        ("Final Answer: NO\nOn reflection:\nFinal Answer: YES", None),  # contradicts itself
        ("I would say Final Answer: YES", None),  # not on a line of its own
        ("Final Answer: yes", None),
        ("Final Answer: YES or NO", None),
        ("The eyes have it. YES", None),
        ("", None),
    ],
)
def test_final_answer_is_read_strictly(text: str, answer: bool | None) -> None:
    assert prompts.parse_final_answer(text) is answer


def test_captions_and_scores() -> None:
    assert prompts.parse_caption("Caption: 3 apples") == "3 apples"
    assert prompts.parse_caption("I see\n**Caption:** Error") == "Error"
    assert prompts.parse_caption("3 apples") is None
    assert prompts.parse_score("Score: YES") is True
    assert prompts.parse_score("Final Answer: YES") is None


def test_prompts_carry_what_they_are_about() -> None:
    question = "Rule 1: The symbol { represents {caption}. Draw {."
    for task in ("maths", "mapping"):
        text = prompts.filter_prompt(task, question)
        assert f"Question: {question}\n" in text and "Final Answer: YES" in text
    other = prompts.filter_prompt("maze", question)  # a task without a filter question of its own
    assert f"Instruction: {question}\n" in other and "Final Answer: YES" in other
    compared = prompts.compare_prompt("{expected_answer}", "4 chairs")
    assert "**Generated Caption:** {expected_answer}\n" in compared
    assert "**Expected Answer:** 4 chairs\n" in compared


@pytest.mark.parametrize(
    ("text", "caption"),
    [
        ("Person: Caucasian; white; old; male", "Person: Caucasian; white; old; male"),
        (" Flower: rose \n", "Flower: rose"),
        ("**Fruit: apple**", "Fruit: apple"),
        ("Reject", "Reject"),
        ("Person: Caucasian; white; old", None),  # a slot is missing
        ("Flower: rose\nIt is red.", None),
        ("A rose.", None),
        ("The picture is a Reject", None),
    ],
)
def test_captions_of_knowledge_are_one_line(text: str, caption: str | None) -> None:
    assert prompts.parse_knowledge_caption(text) == caption


def test_kinds_compare_in_their_own_words() -> None:
    assert set(prompts.CAPTIONS) == set(prompts.COMPARISONS)
    assert "Input: Generated: Flower: {gt} — GroundTruth: rose" in prompts.compare_prompt(
        "Flower: {gt}", "rose", "knowledge"
    )
    assert "Numbers do not matter" in prompts.compare_prompt("apple", "Apples", "mapping_official")
