"""What judges are asked in the words of papers, and how strictly their replies are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from uni_train.eval.prompts import unisandbox, ureason

final, caption, knowledge = unisandbox.parse_final_answer, unisandbox.parse_caption, unisandbox.parse_knowledge_caption
answer = ureason.parse_answer


@pytest.mark.parametrize(
    ("read", "value", "texts"),
    [
        (final, True, ["Three apples, as asked.\nFinal Answer: YES", "**Final Answer:** YES."]),
        (final, False, ["Final Answer: NO\n\n", "The count is wrong.\n**Final Answer: NO**"]),
        (final, None, ["Final Answer: YES\nBecause the image is clear."]),  # not at the end
        (final, None, ["Final Answer: NO\nOn reflection:\nFinal Answer: YES"]),  # contradicts itself
        (final, None, ["I would say Final Answer: YES"]),  # not on a line of its own
        (final, None, ["Final Answer: yes", "Final Answer: YES or NO", "The eyes have it. YES", ""]),
        (unisandbox.parse_score, True, ["Score: YES"]),
        (unisandbox.parse_score, None, ["Final Answer: YES"]),
        (caption, "3 apples", ["Caption: 3 apples"]),
        (caption, "Error", ["I see\n**Caption:** Error"]),
        (caption, None, ["3 apples"]),
        (knowledge, "Person: Caucasian; white; old; male", ["Person: Caucasian; white; old; male"]),
        (knowledge, None, ["Person: Caucasian; white; old"]),  # a slot is missing
        (knowledge, "Flower: rose", [" Flower: rose \n"]),
        (knowledge, "Fruit: apple", ["**Fruit: apple**"]),
        (knowledge, "Reject", ["Reject"]),
        (knowledge, None, ["Flower: rose\nIt is red.", "A rose.", "The picture is a Reject"]),
        (answer, True, ["It matches.\n<answer>Yes</answer>", "<answer>Yes</answer> as I said: <answer>yes</answer>",
                        "<think><answer>No</answer></think>\n<answer>Yes</answer>"]),
        (answer, False, ["<ANSWER> no. </ANSWER>"]),
        (answer, None, ["<answer>Yes</answer> or <answer>No</answer>", "<answer>Yes, mostly</answer>",
                        "<answer>eyes</answer>", "The eyes are right. Yes.", "<answer>Yes", "<answer></answer>", ""]),
    ],
)  # fmt: skip
def test_replies_are_read_strictly(read: Callable[[str], object], value: object, texts: list[str]) -> None:
    for text in texts:
        assert read(text) == value and type(read(text)) is type(value), text


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
