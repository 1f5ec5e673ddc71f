from __future__ import annotations

import pytest

from eval.prompts import unisandbox as prompts


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
    compared = prompts.compare_prompt("{expected_answer}", "4 chairs")
    assert "**Generated Caption:** {expected_answer}\n" in compared
    assert "**Expected Answer:** 4 chairs\n" in compared
