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
