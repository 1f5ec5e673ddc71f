"""What the reward of a judge asks about an image by itself: ours, in the structure of UniSandbox's Table 13.

`rewards.judging.read_score` reads the reply.
"""

from __future__ import annotations

# Placeholder: {prompt}.
SCORE = """\
You are an expert image quality assessor. The last image was drawn for the instruction below; images before it were given with the instruction. You must be extremely strict and analytical in your evaluation.

Instruction: {prompt}

1. State what a picture that follows the instruction must show, and what must stay as it was.
2. Examine the last image and state what it shows.
3. Say how far it follows the instruction: 10 means in every respect, 5 means about half, 0 means not at all.

End with exactly one line, a number from 0 to 10 in the place of N, and nothing after it:
Score: N"""  # noqa: E501
