"""Whether an image is what its prompt asks for: the filter's question of STARS, which judges and rewards ask too.

`eval.reading.yes_no` reads the reply.
"""

from __future__ import annotations

from uni_train.data_gen.registry import TASKS, get_task

# Ours, in the structure of UniSandbox's Table 13. Placeholder: {question}.
SELF_CHECK = """\
You are an expert image quality assessor. The last image was drawn for the instruction below; images before it were given with the instruction. You must be extremely strict and analytical in your evaluation.

Instruction: {question}

1. State what a picture that follows the instruction must show, and what must stay as it was.
2. Examine the last image and state what it shows.
3. Compare the two. Anything missing, added, wrong or distorted means that the instruction was not followed.

End with exactly one of these lines and nothing after it:
Final Answer: YES
Final Answer: NO"""  # noqa: E501


def image_question(prompt: str, task: str | None = None) -> str:
    """In the task's own words (Table 13 for maths, ours for mapping), or in those that suit any."""
    own = get_task(task).filter_question if task in TASKS.names() else ""
    return (own or SELF_CHECK).replace("{question}", prompt)
