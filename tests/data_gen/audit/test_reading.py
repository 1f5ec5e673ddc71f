"""Expressions, questions, answers and rules as other people write them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.audit.reading import (
    Exact,
    UndefinedError,
    UnreadableError,
    follow,
    read_count,
    read_expression,
    read_mapping,
)
from data_gen.audit.reading import read_maths as read


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
    assert {reading.value for reading in read_expression(text)} == {Exact.of(value)}


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


@pytest.mark.parametrize(
    "text", ["2 +", "(2 + 3", "2 3", "", "apples", "4 + foo", "2 + 3)", "√", "1 / (2 - )", "2 ^ 900"]
)
def test_what_is_no_expression_is_unreadable(text):
    with pytest.raises(UnreadableError):
        read_expression(text)


def test_an_undefined_expression_is_read_but_has_no_value():
    for text in ("3 / 0", "3 % (2 - 2)", "√(1 - 5)", "0 ^ 0"):
        (reading,) = read_expression(text)
        assert reading.value is None and reading.reason


fractions = st.fractions(min_value=-50, max_value=50, max_denominator=12)


@given(fractions, fractions, fractions, fractions, st.sampled_from([2, 3, 5, 6, 7]))
def test_exact_numbers_obey_the_laws_of_a_field(a, b, c, d, n):
    x, y = Exact.of(a, b, n), Exact.of(c, d, n)
    assert (x + y) - y == x
    assert x * y == y * x
    assert x * (y + y) == x * y + x * y
    if y != Exact.of(0):
        assert (x / y) * y == x
    else:
        with pytest.raises(UndefinedError):
            _ = x / y


@given(st.fractions(min_value=0, max_value=900, max_denominator=30))
def test_a_root_squares_to_what_it_is_the_root_of(value):
    assert Exact.of(value).root() * Exact.of(value).root() == Exact.of(value)


@pytest.mark.parametrize(
    ("question", "noun", "value"),
    [
        ("Generate as many kites as the result of 8 / 4.", "kites", 2),
        ("Show the number of owls that matches the outcome of 9 - 7.", "owls", 2),
        ("Create the same quantity of knives as 4 / 1 equals.", "knives", 4),
        ("Provide the same number of teddy bears as calculated by 5 - 3.", "teddy bears", 2),
        ("Make the equivalent number of jars as √49 / 7 + 4.", "jars", 5),
        ("Give as many pairs of gloves as (9 - 3) / 2.", "pairs of gloves", 3),
        ("Show an amount of nuts equal to √(K² + 9) where K = 4.", "nuts", 5),
        ("Create the same quantity of jugs as 11 / 4 equals then rounded down.", "jugs", 2),
        ("Work out 3 + 2 and draw that many hens.", "hens", 5),
        ("How many is 3 + 2? Draw that many hens.", "hens", 5),
        ("Draw (2 + 1) * 2 hens.", "hens", 6),
        ("Show the outcome of 2 * 3.", None, 6),
    ],
)
def test_a_maths_question_is_taken_apart(question, noun, value):
    found = read(question)
    assert found.noun == noun and found.readings[0].value == Exact.of(value)


@pytest.mark.parametrize(
    ("answer", "count", "noun"),
    [("4 chairs.", 4, "chairs"), ("an apple", 1, "apple"), ("Two kittens", 2, "kittens"), ("1 toy car", 1, "toy car")],
)
def test_an_answer_is_a_count_and_a_noun(answer, count, noun):
    assert read_count(answer) == (Exact.of(count), noun)


@pytest.mark.parametrize(
    ("rules", "asked", "steps"),
    [
        ("Rule 1: The symbol @ represents owls. Rule 2: 7 means nuts.", "the symbol @", "@ owls"),
        ("Rule 1: 'Q' stands for the number 8, which means sledge. Rule 2: '%' refers to 'Q'.", "'%'", "% Q 8 sledge"),
        ("Rule 1: % means a jar. Rule 2: The number 4 means % .Rule 3: Letter K maps to 4.", "letter 'K'", "K 4 % jar"),
        ("Rule 1: '><' refers to '?'. Rule 2: '?' is linked to 29. Rule 3: 29 is a bush.", "'><'", ">< ? 29 bush"),
        ("@ -> 7. 7 -> owl.", "@", "@ 7 owl"),
        ("@ = 7; 7 = owl.", "@", "@ 7 owl"),
        ("A denotes the letter B. B corresponds to cat.", "the letter A", "A B cat"),
        ("Rule 1: The letter D is tied to * symbol. Rule 2: * is for an owl.", "D", "D * owl"),
        ("Rule 1: - stands for 4. Rule 2: 4 means owl.", "the symbol -", "- 4 owl"),
    ],
)
def test_rules_are_followed_to_their_object(rules, asked, steps):
    question = read_mapping(f"{rules} Please generate the object represented by {asked}.")
    (chain,) = follow(question)
    assert list(chain.steps) == steps.split()
    assert chain.noun == chain.steps[-1]


def test_chains_without_an_object_say_where_they_end():
    (open_end,) = follow(read_mapping("Rule 1: A means 7. Rule 2: 8 means owl. Draw the animal represented by A."))
    assert open_end.noun is None and "no rule says what 7 means" in open_end.reason
    (circle,) = follow(read_mapping("Rule 1: A means B. Rule 2: B means A. Draw the animal represented by A."))
    assert circle.noun is None and "A -> B -> A goes in a circle" in circle.reason
