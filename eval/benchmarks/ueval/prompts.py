"""The judge's prompt of UEval (anonymous, under review, Figure 9), word for word, and the form of its reply."""

# ruff: noqa: E501
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# "Only return true is all" is the paper's.
JUDGE = """\
Your job is to look at a conversation and a rubric item, and score the answer in the conversation on how well it follows the rubric item. The conversation contains a list of images, a text answer, and a question. The images are to help answer the question.

#### Conversation

Question: <<question>>
Text Answer: <<text_answer>>
Image Answer: <<image_answer>>

#### Rubric Item

<<rubric_item>>

#### Instructions

Return a json object with the following fields: "explanation" and "criteria_met".

- The "explanation" field should be a string explaining why the image does or does not meet the criteria of the rubric item.
- The "criteria_met" field should be a boolean indicating whether the image meets the criteria of the rubric item. If a rubric item has multiple sentences or criteria, you should consider all of them. If any of the criteria is not met, the answer should be false. Only return true is all of the criteria are met. If there is not enough information in the image or you are not sure, the answer should be "not sure".
- If the rubric item is just about the image or diagram, you should only analyze the image, not the text answer. If the rubric item is about the image and the text answer, you should analyze both the image and the text answer."""

NOT_SURE = "not sure"
REPLY: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "explanation": {"type": "string"},
        "criteria_met": {"anyOf": [{"type": "boolean"}, {"type": "string", "enum": [NOT_SURE]}]},
    },
    "required": ["explanation", "criteria_met"],
}


def judge_prompt(question: str, text_answer: str, images: int, rubric_item: str) -> str:
    """Figure 9 for one rubric. What stands for the images, which are attached before it, is ours."""
    shown = f"the {images} attached images, in order" if images > 1 else "the attached image"
    filled = {
        "question": question,
        "text_answer": text_answer or "(none)",
        "image_answer": shown if images else "(none)",
        "rubric_item": rubric_item,
    }
    return re.sub("<<(" + "|".join(filled) + ")>>", lambda found: filled[found[1]], JUDGE)
