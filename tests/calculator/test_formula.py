"""Formulas: exact sums of symbol powers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_memory.formula import Formula, product, symbol, total

_symbols = st.sampled_from(["s", "b", "h", "a", "L", "t"])
_terms = st.lists(st.tuples(st.integers(-9, 9), st.lists(_symbols, max_size=4)), max_size=5)
_values = st.fixed_dictionaries({name: st.integers(1, 97) for name in "sbhaLt"})


def _build(terms: list[tuple[int, list[str]]]) -> Formula:
    return total(product((coefficient, *names)) for coefficient, names in terms)


@given(_terms, _terms, _values)
def test_arithmetic_agrees_with_numbers(left, right, values):
    x, y = _build(left), _build(right)
    a, b = x.evaluate(values), y.evaluate(values)
    assert (x + y).evaluate(values) == a + b
    assert (x - y).evaluate(values) == a - b
    assert (x * y).evaluate(values) == a * b
    assert (x * symbol("s") / symbol("s")) == x


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (product((34, "s", "b", "h")), "34·s·b·h"),
        (product((5, "a", "s", "s", "b")), "5·a·s²·b"),
        (product((5, "a", "s")) / product(("h", "t")), "5·a·s/(h·t)"),
        (product(("s",)) / 2, "s/2"),
        (product((3,)), "3"),
        (Formula(), "0"),
        (symbol("s") - product((2, "h")), "s − 2·h"),
    ],
)
def test_text(formula, text):
    assert formula.text() == text


def test_text_with_a_factor_and_with_numbers():
    tokens = product(("s", "b", "h"))
    formula = 34 * tokens + product((5, "a", "s", "s", "b"))
    values = {"s": 4096, "b": 1, "h": 4096, "a": 32}
    assert formula.text(factor=tokens) == "s·b·h·(34 + 5·a·s/h)"
    assert formula.text(factor=tokens, values=values) == (
        "4,096 × 1 × 4,096 × (34 + 5 × 32 × 4,096 / 4,096)"
    )


def test_a_remainder_is_an_error_and_not_a_rounding():
    with pytest.raises(ArithmeticError, match="not whole"):
        (symbol("s") / symbol("t")).evaluate({"s": 7, "t": 2})


def test_only_symbols_and_single_divisors_are_taken():
    with pytest.raises(ValueError, match="not a symbol"):
        symbol("Z")
    with pytest.raises(ValueError, match="single term"):
        symbol("s") / (symbol("s") + 1)
