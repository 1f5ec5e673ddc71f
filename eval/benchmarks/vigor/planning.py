"""An external planner for models that draw one image a call (section 4.1): it cuts the task into steps, drawn in turn.

The paper names its planners (GPT-5, Gemini-2.5-Pro) and gives no prompt: this one is ours.
"""

from __future__ import annotations

import re

PROMPT = """You plan the edits of an image. Another model will carry them out, one after the other, each on the \
image that the last one left. It sees neither the task nor your other steps.

Task: {instruction}

Solve the task, then write at most {steps} steps. Each is one instruction for an edit that can be seen in the image \
and brings it closer to the solution; after the last, the image must show the whole solution. Change nothing else.
Write one step a line, numbered "1.", "2.", ..., and nothing else."""
_STEP = re.compile(r"\s*\(?(\d+)[.):]\s+(\S.*)")


def prompt(instruction: str, steps: int) -> str:
    return PROMPT.format(instruction=instruction, steps=steps)


def steps_of(plan: str, most: int) -> list[str]:
    """The first `most` numbered lines; none where the plan has none."""
    found = (_STEP.fullmatch(line.rstrip()) for line in plan.splitlines())
    return [match[2] for match in found if match][:most]
