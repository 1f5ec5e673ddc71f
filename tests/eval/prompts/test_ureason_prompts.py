from __future__ import annotations

import pytest

from uni_train.eval.prompts import ureason


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It matches.\n<answer>Yes</answer>", True),
        ("<ANSWER> no. </ANSWER>", False),
        ("<answer>Yes</answer> as I said: <answer>yes</answer>", True),
        ("<think><answer>No</answer></think>\n<answer>Yes</answer>", True),
        ("<answer>Yes</answer> or <answer>No</answer>", None),
        ("<answer>Yes, mostly</answer>", None),
        ("<answer>eyes</answer>", None),
        ("The eyes are right. Yes.", None),
        ("<answer>Yes", None),
        ("<answer></answer>", None),
        ("", None),
    ],
)
def test_answers_are_read_strictly(text: str, answer: bool | None) -> None:
    assert ureason.parse_answer(text) is answer


def test_placeholders_are_filled_once() -> None:
    prompt = ureason.verify_reasoning_prompt("{criteria}", "{user_prompt}", "three {model_thought}")
    assert (
        "=== User Prompt ===\n{criteria}\n" in prompt and "=== Target Criteria ===\nthree {model_thought}\n" in prompt
    )
    assert 'Target Description: "a {b}"' in ureason.verify_image_prompt("a {b}")
    assert ureason.external_prompt("Task: {prompt}").endswith("\n\nTask: {prompt}")


@pytest.mark.parametrize(
    ("thought", "tagged", "published"),
    [
        ("Steps. <refined_prompt>three cups</refined_prompt>", "three cups", None),
        ("<refined_prompt>a</refined_prompt> no: <refined_prompt>b\n</refined_prompt>", "b", None),
        ("<refined_prompt> </refined_prompt>", None, None),
        ("The prompt is vague. Refined Prompt: three cups on a table.", None, "three cups on a table."),
        ("So the final prompt is: two red balls</think>", None, "two red balls"),
        ("The refined prompt:", None, ""),
        ("I was prompted to draw.", None, None),
    ],
)
def test_refined_prompts(thought: str, tagged: str | None, published: str | None) -> None:
    assert ureason.parse_refined_prompt(thought) == tagged
    assert ureason.published_refined_prompt(thought) == published
