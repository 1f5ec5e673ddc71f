"""What the released BAGEL is told in think mode: the system prompts, letter by letter (a blank ends their first line).

They are read before everything else, also before input images, and stand in all three contexts of guidance.
"""

from __future__ import annotations

THINK_THEN_DRAW = (
    "You should first think about the planning process in the mind and then generate the image. \n"
    "The planning process is enclosed within <think> </think> tags, "
    "i.e. <think> planning process here </think> image here"
)

THINK_THEN_ANSWER = (
    "You should first think about the reasoning process in the mind and then provide the user with the answer. \n"
    "The reasoning process is enclosed within <think> </think> tags, "
    "i.e. <think> reasoning process here </think> answer here"
)
