from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.eval.benchmarks.published import write

# Questions of our own in the published schema, with the kinds of mistakes that the published files hold.
MATHS = [
    {"Question": "Draw as many chairs as 2 + 2.", "Answer": "4 chairs", "id": "1"},
    {"Question": "Draw as many cups as the square root of 9 plus 1 minus 2.", "Answer": "4 cups", "id": "2"},
    {"Question": "Draw as many dogs as 3 * 3.", "Answer": "9 dogs", "id": "3"},
    {"Question": "Draw as many lamps as 4 / 0.", "Answer": "1 lamp", "id": "4"},
    {"Question": "Draw as many kites as 6 - 5.", "Answer": "2 kites", "id": "5"},
    {"Question": "Draw as many pens as 1 plus 1 times 2.", "Answer": "3 pens", "id": "6"},
]
RULES = (
    "Rule 1: The symbol @ represents {}. Rule 2: The symbol * represents {}. "
    "Please generate the object represented by the symbol {}."
)


def pair(number: int, first: str, second: str, answers: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"ID": str(number), f"Question_{which}": RULES.format(first, second, symbol), "Answer": answer}
        for which, symbol, answer in zip("AB", "@*", answers, strict=True)
    ]


MAPPING = [
    *pair(1, "apples", "bananas", ["Apples", "Bananas"]),
    *pair(2, "chairs", "tables", ["Chairs", "Chairs"]),  # B is wrong
    *pair(3, "kites", "kites", ["Kites", "Kites"]),  # no pair at all
    {"ID": "4", "Question_A": RULES.format("dogs", "cats", "@"), "Answer": "Dogs"},
    {"ID": "4", "Question_B": RULES.format("dogs", "cats", "#"), "Answer": "Cats"},  # no rule says what # means
]
PORTRAIT = "An elderly Caucasian woman with white hair."
FORWARD = [
    {"ID": 1, "Question": "Generate a portrait of Belamira.", "Answer": PORTRAIT},
    {"ID": 2, "Question": "Draw Belamira's favorite fruit.", "Answer": "apples"},
    {"ID": 3, "Question": "Draw Belamira's favorite flower.", "Answer": "rose"},
]
INVERSE = [{"ID": 1, "Question": "Draw the person whose favorite fruit is apples.", "Answer": PORTRAIT}]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Laid out as the published repository."""
    folder = tmp_path / "UniSandBox"
    for name, rows in (
        ("test_reasoning/math_1", MATHS), ("test_reasoning/mapping2", MAPPING),
        ("test_knowledge/Belamira", FORWARD), ("test_knowledge/Belamira_Coraneth", INVERSE),
    ):  # fmt: skip
        write(folder, "unisandbox", *rows, file=f"benchmark/{name}.jsonl")
    return folder
