"""Formulas as MathML, which browsers set without a script or a font of ours."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ..formula import Formula, Monomial, split_term
from .svg import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction

    Terms = tuple[tuple[Monomial, Fraction | int], ...]

_TIMES = "<mo>·</mo>"


def mathml(formula: Formula, *, factor: Formula | None = None) -> str:
    """``formula`` in its symbols, with ``factor`` (one term) taken out of a sum of several."""
    return _written(tuple(formula.terms.items()), factor and tuple(factor.terms.items()))


@lru_cache(maxsize=1024)  # a page shows the same few dozen after every change
def _written(terms: Terms, of_factor: Terms | None) -> str:
    # The terms and not the formula are what is remembered by: equal ones may be in another order.
    formula = Formula(dict(terms))
    factor = None if of_factor is None else Formula(dict(of_factor))
    spoken = escape(formula.text(factor=factor))
    return f'<math alttext="{spoken}" displaystyle="true">{_factored(formula, factor)}</math>'


def _factored(formula: Formula, factor: Formula | None) -> str:
    if factor is None or len(formula.terms) <= 1:
        return _sum(formula)
    ((outside, _),) = factor.terms.items()
    inside = _sum(formula / factor)
    return f"{_symbols(outside)}{_TIMES}<mrow><mo>(</mo>{inside}<mo>)</mo></mrow>"


def _sum(formula: Formula) -> str:
    if not formula.terms:
        return "<mn>0</mn>"
    found = ""
    for monomial, coefficient in formula.terms.items():
        sign = "−" if coefficient < 0 else "+" if found else ""
        top, bottom = abs(coefficient.numerator), coefficient.denominator
        found += (f"<mo>{sign}</mo>" if sign else "") + _term(top, bottom, monomial)
    return found


def _term(numerator: int, denominator: int, monomial: Monomial) -> str:
    above, below = split_term(monomial)
    top = _product(numerator, above)
    if not below and denominator == 1:
        return top
    return f"<mfrac><mrow>{top}</mrow><mrow>{_product(denominator, below)}</mrow></mfrac>"


def _product(number: int, symbols: Monomial) -> str:
    if not symbols:
        return f"<mn>{number:,}</mn>"
    shown = _symbols(symbols)
    return shown if number == 1 else f"<mn>{number:,}</mn>{_TIMES}{shown}"


def _symbols(symbols: Iterable[tuple[str, int]]) -> str:
    return _TIMES.join(
        f"<mi>{name}</mi>" if power == 1 else f"<msup><mi>{name}</mi><mn>{power}</mn></msup>"
        for name, power in symbols
    )
