"""Maths questions as other people write them."""

import pytest

from uni_train.data_gen.maths.audit import read_maths
from uni_train.data_gen.maths.exact import Exact


@pytest.mark.parametrize(
    ("question", "noun", "value"),
    [
        ("Generate as many kites as the result of 8 / 4.", "kites", 2),
        ("Give as many pairs of gloves as (9 - 3) / 2.", "pairs of gloves", 3),
        ("Show an amount of nuts equal to √(K² + 9) where K = 4.", "nuts", 5),
        ("Create the same quantity of jugs as 11 / 4 equals then rounded down.", "jugs", 2),
        ("Work out 3 + 2 and draw that many hens.", "hens", 5),
        ("Draw (2 + 1) * 2 hens.", "hens", 6),
        ("Show the outcome of 2 * 3.", None, 6),
    ],
)
def test_a_maths_question_is_taken_apart(question, noun, value):
    found = read_maths(question)
    assert found.noun == noun and found.readings[0].value == Exact.from_parts(value)
