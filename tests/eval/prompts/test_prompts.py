"""What judges are asked in the words of papers."""

from __future__ import annotations

from uni_train.data_gen.questions import image_question
from uni_train.eval.prompts import unisandbox, ureason


def test_prompts_carry_what_they_are_about() -> None:
    """Placeholders are filled once: what is filled in is not filled in again."""
    question = "Rule 1: The symbol { represents {caption}. Draw {."
    for task, named in (("maths", "Question"), ("mapping", "Question"), ("maze", "Instruction")):
        text = image_question(question, task)
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
