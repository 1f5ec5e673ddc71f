"""What judges are asked in the words of papers, and how strictly their replies are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from uni_train.eval.prompts import unisandbox, ureason

final, knowledge, answer = unisandbox.parse_final_answer, unisandbox.parse_knowledge_caption, ureason.parse_answer
PERSON = "Person: Caucasian; white; old; male"


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (final, "Three apples, as asked.\nFinal Answer: YES", True),
        (final, "Final Answer: NO\n\n", False),
        (final, "The count is wrong.\n**Final Answer: NO**", False),
        (final, "**Final Answer:** YES.", True),
        (final, "Final Answer: YES\nBecause the image is clear.", None),  # not at the end
        (final, "Final Answer: NO\nOn reflection:\nFinal Answer: YES", None),  # contradicts itself
        (final, "I would say Final Answer: YES", None),  # not on a line of its own
        (final, "Final Answer: yes", None),
        (final, "Final Answer: YES or NO", None),
        (final, "The eyes have it. YES", None),
        (final, "", None),
        (unisandbox.parse_score, "Score: YES", True),
        (unisandbox.parse_score, "Final Answer: YES", None),
        (unisandbox.parse_caption, "Caption: 3 apples", "3 apples"),
        (unisandbox.parse_caption, "I see\n**Caption:** Error", "Error"),
        (unisandbox.parse_caption, "3 apples", None),
        (knowledge, PERSON, PERSON),
        (knowledge, " Flower: rose \n", "Flower: rose"),
        (knowledge, "**Fruit: apple**", "Fruit: apple"),
        (knowledge, "Reject", "Reject"),
        (knowledge, "Person: Caucasian; white; old", None),  # a slot is missing
        (knowledge, "Flower: rose\nIt is red.", None),
        (knowledge, "A rose.", None),
        (knowledge, "The picture is a Reject", None),
        (answer, "It matches.\n<answer>Yes</answer>", True),
        (answer, "<ANSWER> no. </ANSWER>", False),
        (answer, "<answer>Yes</answer> as I said: <answer>yes</answer>", True),
        (answer, "<think><answer>No</answer></think>\n<answer>Yes</answer>", True),
        (answer, "<answer>Yes</answer> or <answer>No</answer>", None),
        (answer, "<answer>Yes, mostly</answer>", None),
        (answer, "<answer>eyes</answer>", None),
        (answer, "The eyes are right. Yes.", None),
        (answer, "<answer>Yes", None),
        (answer, "<answer></answer>", None),
        (answer, "", None),
    ],
)
def test_replies_are_read_strictly(read: Callable[[str], object], text: str, value: object) -> None:
    assert read(text) == value and type(read(text)) is type(value)


def test_prompts_carry_what_they_are_about() -> None:
    """Placeholders are filled once: what is filled in is not filled in again."""
    question = "Rule 1: The symbol { represents {caption}. Draw {."
    for task, named in (("maths", "Question"), ("mapping", "Question"), ("maze", "Instruction")):
        text = unisandbox.filter_prompt(task, question)
        assert f"{named}: {question}\n" in text and "Final Answer: YES" in text
    compared = unisandbox.compare_prompt("{expected_answer}", "4 chairs")
    assert "**Generated Caption:** {expected_answer}\n" in compared and "**Expected Answer:** 4 chairs\n" in compared
    assert set(unisandbox.CAPTIONS) == set(unisandbox.COMPARISONS)
    flower = unisandbox.compare_prompt("Flower: {gt}", "rose", "knowledge")
    assert "Input: Generated: Flower: {gt} — GroundTruth: rose" in flower
    assert "Numbers do not matter" in unisandbox.compare_prompt("apple", "Apples", "mapping_official")
    asked = ureason.verify_reasoning_prompt("{criteria}", "{user_prompt}", "three {model_thought}")
    assert "=== User Prompt ===\n{criteria}\n" in asked and "=== Target Criteria ===\nthree {model_thought}\n" in asked
    assert 'Target Description: "a {b}"' in ureason.verify_image_prompt("a {b}")
    assert ureason.external_prompt("Task: {prompt}").endswith("\n\nTask: {prompt}")
