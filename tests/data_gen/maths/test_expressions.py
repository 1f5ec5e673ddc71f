"""Drawing, printing and working out expressions, checked by the independent reader (data_gen.maths.reading)."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uni_train.data_gen.maths import expressions
from uni_train.data_gen.maths.expressions import Expression
from uni_train.data_gen.maths.reading import read_expression


def drawn(seed: int, operations: int, value: int, bound: int) -> Expression:
    random_ = random.Random(seed)
    while True:
        expression = expressions.draw(value, operations, random_, bound, bound)
        if expression is not None:
            return expressions.emphasise(expression, random_) if random_.random() < 0.5 else expression


def size(expression: Expression | None) -> int:
    return 0 if expression is None or expression.op is None else 1 + size(expression.left) + size(expression.right)


def values(expression: Expression | None) -> list[int]:
    return [] if expression is None else [expression.value, *values(expression.left), *values(expression.right)]


@given(st.integers(0, 10**9), st.integers(1, 3), st.integers(1, 6), st.sampled_from([36, 99]), st.booleans())
def test_what_is_drawn_has_its_value_for_an_independent_reader(seed, operations, value, bound, spaced):
    expression = drawn(seed, operations, value, bound)
    readings = read_expression(expressions.show(expression, spaced))
    assert {reading.value.whole for reading in readings} == {value}
    assert size(expression) == operations
    assert all(0 <= v <= bound for v in values(expression))


@given(st.integers(0, 10**9), st.integers(1, 3), st.integers(1, 6))
def test_every_step_is_a_true_equation_and_the_last_one_is_the_result(seed, operations, value):
    steps = expressions.steps(drawn(seed, operations, value, 36), spaced=True)
    assert len(steps) == operations
    for step in steps:
        left, right = step.split(" = ")
        assert read_expression(left)[0].value.whole == int(right)
    assert steps[-1].endswith(f"= {value}")


def number(value: int) -> Expression:
    return Expression(value)


def join(left: Expression, op: str, right: Expression) -> Expression:
    value = expressions.apply(op, left.value, right.value)
    assert value is not None
    return Expression(value, op, left, right)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (join(join(number(2), "*", number(3)), "-", number(4)), "2 * 3 - 4"),
        (join(number(9), "-", join(number(2), "+", number(3))), "9 - (2 + 3)"),
        (join(join(number(2), "+", number(1)), "*", number(2)), "(2 + 1) * 2"),
        (join(join(number(2), "^", number(2)), "^", number(1)), "(2^2)^1"),
        (Expression(4, "√", join(number(4), "^", number(2))), "√(4^2)"),
        (join(join(number(9), "%", number(4)), "*", number(2)), "(9 % 4) * 2"),
        (join(join(number(8), "/", number(2)), "*", number(1)), "(8 / 2) * 1"),
    ],
)
def test_parentheses_stand_where_precedence_or_convention_needs_them(expression, text):
    assert expressions.show(expression, spaced=False) == text
    assert read_expression(text)[0].value.whole == expression.value


def test_commuted_operands_are_one_canonical_expression_and_other_orders_are_not():
    a, b = number(3), number(2)
    assert expressions.canonical(join(a, "+", b)) == expressions.canonical(join(b, "+", a))
    assert expressions.canonical(join(a, "-", b)) != expressions.canonical(join(number(5), "-", a))
    grouped = Expression(5, "+", a, b, grouped=True)
    assert expressions.canonical(grouped) == expressions.canonical(join(a, "+", b))
