"""The four error types of wrong images in setting 2 (UReason, section 5 and appendix J.1).

In the paper people classified Bagel's errors; it prints no prompt. Here the judge of thoughts (Figure 26) or a program
finds a *reasoning error*. A judge classifies the other three with the question below, which is ours and has the
paper's definitions. In nano's world a program does: an object that the prompt does not name is a hallucination.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from uni_train.data_gen.ureason.outcomes import Sprites
from uni_train.eval.benchmark import Scored
from uni_train.eval.benchmarks.ureason.settings import GUIDED, REASONING
from uni_train.eval.prompts import filled

if TYPE_CHECKING:
    from uni_train.eval.benchmark import JudgeAsk

REASONING_ERROR, MISREAD, HALLUCINATION, TASK = TYPES = (
    "reasoning error", "instruction misinterpretation", "concept hallucination", "task-specific error",
)  # fmt: skip
UNKNOWN = "not told apart"
CHECK = "error"  # the name of the check whose reason is the type

# Ours; the definitions are those of appendix J.1. Placeholders: {prompt}, {criterion}.
QUESTION = """\
An image was generated for a prompt and does not meet its target. Say why. The model's reasoning about the target was right.

=== Prompt ===
{prompt}

=== Target ===
{criterion}

=== Error types ===
1. Instruction misinterpretation: the image fails to grasp the modality or the intent of the prompt, such as code or words rendered as text in the place of the objects that they describe.
2. Concept hallucination: the image shows objects that appear nowhere in the prompt.
3. Task-specific error: neither of these; the image fails at counts, places, attributes or letters that the target asks for.

Think step by step, then give the number of the first type that applies: <answer>1</answer>, <answer>2</answer> or <answer>3</answer>."""  # noqa: E501


async def judged(ask: JudgeAsk, image: bytes, prompt: str, criterion: str) -> str:
    """One of the last three types. Raises Unparseable."""
    question = filled(QUESTION, prompt=prompt, criterion=criterion)
    return TYPES[int(await ask(question, (image,), parse=_number))]


def _number(reply: str) -> float:
    """Raises ValueError where it has none, or another."""
    from uni_train.eval.reading import expecting, mark

    form = "<answer>1</answer>, <answer>2</answer> or <answer>3</answer>"
    return expecting(partial(mark, label="answer", low=1, high=3), form)(reply)


def by_program(outcome: Sprites, prompt: str, drawn: str | None) -> str:
    """Of a wrong image of nano's world whose thought is right. drawn: the one object that it shows, None for none or
    several."""
    named = {name for name, _ in outcome.groups}
    return HALLUCINATION if drawn is not None and drawn not in named and drawn not in prompt.lower() else TASK


def thought_right(scored: Scored, right: bool | None) -> bool | None:
    """Whether a sample's thought is right: as a program tells (`right`), else as the judge did; None: nobody knows."""
    if right is not None or scored.verdict is None:
        return right
    return next((check.status == "pass" for check in scored.verdict.checks if check.name == REASONING), None)


def type_of(scored: Scored, right: bool | None) -> str | None:
    """One of TYPES or UNKNOWN of a wrong image in setting 2; None of all other samples. right: its thought."""
    if scored.sample.ask.setting != GUIDED or scored.outcome != "fail" or scored.verdict is None:
        return None
    if thought_right(scored, right) is False:
        return REASONING_ERROR
    return next((check.reason for check in scored.verdict.checks if check.name == CHECK), UNKNOWN)
