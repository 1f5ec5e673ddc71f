"""Numbers a + b * sqrt(n): the laws of a field, and roots; and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uni_train.data_gen.maths.exact import Exact, UndefinedError, read_count

fractions = st.fractions(min_value=-50, max_value=50, max_denominator=12)


@given(fractions, fractions, fractions, fractions, st.sampled_from([2, 3, 5, 6, 7]))
def test_exact_numbers_obey_the_laws_of_a_field(a, b, c, d, n):
    x, y = Exact.from_parts(a, b, n), Exact.from_parts(c, d, n)
    assert (x + y) - y == x
    assert x * y == y * x
    assert x * (y + y) == x * y + x * y
    if y != Exact.from_parts(0):
        assert (x / y) * y == x
    else:
        with pytest.raises(UndefinedError):
            _ = x / y


@given(st.fractions(min_value=0, max_value=900, max_denominator=30))
def test_a_root_squares_to_what_it_is_the_root_of(value):
    assert Exact.from_parts(value).root() * Exact.from_parts(value).root() == Exact.from_parts(value)


def test_an_answer_is_a_count_and_a_noun():
    for answer, count, noun in (("Two kittens", 2, "kittens"), ("1 toy car", 1, "toy car")):
        assert read_count(answer) == (Exact.from_parts(count), noun)
