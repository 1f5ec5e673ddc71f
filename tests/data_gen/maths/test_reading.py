"""Expressions as other people write them: signs, words, and what can be read in several ways."""

from fractions import Fraction

import pytest

from uni_train.data_gen.maths.exact import Exact, UnreadableError
from uni_train.data_gen.maths.reading import read_expression


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3 + 2 - √25", 0), ("12 - 3 * 2 ^ 2 % 5", 10), ("9 % 4 + 1", 2), ("17 mod 5", 2), ("2 ** 3", 8),
        ("2 ^ 3 ^ 1", 8), ("√(16 + 9)", 5), ("(2 + 1) × 2", 6), ("8 ÷ 4", 2), ("5 x 1", 5), ("3² - 2³", 1),
        ("7 / 2", Fraction(7, 2)), ("2(1 + 2)", 6), ("2√9", 6), ("0.5 * 4", 2), ("-3 + 5", 2), ("√√16", 2),
        ("twenty-one minus eighteen", 3), ("twenty one divided by seven", 3), ("five squared", 25), ("2 cubed", 8),
        ("the remainder of 7 divided by 4", 3), ("the remainder when 17 is divided by 6", 5), ("the sum of 2 and 3", 5),
        ("the difference between 9 and the product of 2 and 3", 3), ("the quotient of 8 and 4", 2), ("half of 8", 4),
        ("twice 3", 6), ("the cube root of 27", 3), ("3 to the power of 2", 9), ("6 over 2", 3),
        ("the sum of 2 and 3, minus 1", 4), ("sqrt(16) - 1", 3),
    ],
)  # fmt: skip
def test_an_expression_with_one_meaning(text, value):
    assert {reading.value for reading in read_expression(text)} == {Exact.from_parts(value)}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("the square root of 9 plus 1 minus 2", ["2", "-2 + √10", "2√2"]),
        ("the square root of 16 minus 3, then add 2", ["3", "2 + √13"]),
        ("two plus three times four", ["14", "20"]),
        ("9 minus 3 squared", ["0", "36"]),
        ("half of 8 plus 2", ["6", "5"]),
        ("6 / 2(1 + 2)", ["9", "1"]),
    ],
)
def test_words_that_can_be_read_in_several_ways_with_the_conventional_one_first(text, values):
    assert [str(reading.value) for reading in read_expression(text)] == values


def test_what_is_no_expression_is_unreadable_and_an_undefined_one_has_no_value():
    for text in ("2 +", "(2 + 3", "2 3", "", "apples", "4 + foo", "2 + 3)", "√", "1 / (2 - )", "2 ^ 900"):
        with pytest.raises(UnreadableError):
            read_expression(text)
    for text in ("3 / 0", "3 % (2 - 2)", "√(1 - 5)", "0 ^ 0"):
        (reading,) = read_expression(text)
        assert reading.value is None and reading.reason
