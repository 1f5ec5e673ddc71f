"""What the judge of UEval is asked, and the form of its reply.

compat=paper: Figure 9 (anonymous, under review), word for word. compat=official: the three prompts of the released code
(github.com/zlab-princeton/UEval, MIT), read from a clone of it: one for text, two for images by kind of question.
"""

# ruff: noqa: E501
from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.core.errors import DataError
from uni_train.core.reading_limits import read_text, reason
from uni_train.eval.reading import truth

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


CODE = "ueval_eval.py"
OFFICIAL_REPLY: Mapping[str, Any] = {
    "type": "object",
    "properties": {"criteria_met": {"anyOf": [{"type": "boolean"}, {"type": "string"}]}},
    "required": ["criteria_met"],
}
_GET = "Get it with `git clone https://github.com/zlab-princeton/UEval`, and name the clone: options.ueval.code=UEval"


@dataclass(frozen=True, slots=True)
class Official:
    """Prompts of the released code: a text answer's, an image's of open- and closed-ended questions, the rubric's."""

    text: str
    open_image: str
    closed_image: str
    text_rubric: str
    image_rubric: str

    @property
    def all(self) -> tuple[str, ...]:
        return self.text, self.open_image, self.closed_image, self.text_rubric, self.image_rubric

    def prompt(self, part: str, category: str, question: str, text_answer: str, rubric: str) -> str:
        """For one rubric of `part`, context first, as the code asks without its cache."""
        image = self.closed_image if category == "closed-ended" else self.open_image
        context, item = (self.text, self.text_rubric) if part == "text" else (image, self.image_rubric)
        filled = {"question": question, "text_answer": text_answer, "rubric_item": rubric}
        return _filled(f"{context}\n\n{item}", filled)


def read_official(code: Path) -> Official:
    """The prompts of a clone of the released code, or of its ueval_eval.py; nothing of it is run.

    Raises DataError: it is not there, or has not these prompts.
    """
    path = code if code.suffix == ".py" else code / CODE
    try:
        tree = ast.parse(read_text(path))
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path} is no released code of UEval ({reason(error)}). {_GET}") from error
    names = ("TEXT_TEMPLATE", "IMAGE_TEMPLATE_OPEN", "IMAGE_TEMPLATE_CLOSED", "TEXT_RUBRIC_TEMPLATE",
             "IMAGE_RUBRIC_TEMPLATE")  # fmt: skip
    given = {
        target.id: _constant(node.value)
        for node in tree.body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    lacking = [name for name in names if not given.get(name)]
    if lacking:
        raise DataError(f"{path} has no prompt {lacking[0]}. {_GET}")
    return Official(*(given[name] for name in names))


def _constant(node: ast.expr) -> str:
    """A text that stands there as it is, or with `.strip()`; "" for anything else."""
    stripped = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strip"
    inner = node.func.value if stripped else node  # type: ignore[attr-defined]
    if not isinstance(inner, ast.Constant) or not isinstance(inner.value, str):
        return ""
    return inner.value.strip() if stripped else inner.value


def met(reply: Mapping[str, Any]) -> bool:
    """Whether the judge says that the rubric is satisfied: "not sure" is false."""
    return truth(reply["criteria_met"]) is True


def judge_prompt(question: str, text_answer: str, images: int, rubric_item: str) -> str:
    """Figure 9 for one rubric. What stands for the images, which are attached before it, is ours."""
    shown = f"the {images} attached images, in order" if images > 1 else "the attached image"
    filled = {
        "question": question,
        "text_answer": text_answer or "(none)",
        "image_answer": shown if images else "(none)",
        "rubric_item": rubric_item,
    }
    return _filled(JUDGE, filled)


def _filled(template: str, given: Mapping[str, str]) -> str:
    """Each placeholder once: what is filled in stays as it stands."""
    return re.sub("<<(" + "|".join(given) + ")>>", lambda match: given[match[1]], template)
