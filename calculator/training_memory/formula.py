"""Exact formulas in a run's symbols, so that a sum of rows can be read, compared and evaluated.

A :class:`Formula` is a sum of terms, each a whole-number coefficient times powers of symbols
(negative powers allowed: ``5·a·s/h``). The closed forms on the site are sums of these, never typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod

# Coefficients are whole but where a formula was divided by a number, so fractions (and decimal
# with it) is only imported there; type checkers know the bare name TYPE_CHECKING.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction

#: A layer's products with weights, by the names that the layers' code gives the weights.
LINEAR = (
    "query",
    "key",
    "value",
    "query, key and value",
    "attention output",
    "gate",
    "up",
    "gate and up",
    "down",
)
#: The units of FSDP's first version: the whole model, a layer, and each matrix of an adapter.
_FLAT = (
    *("root", "layer"),
    *(f"{name}'s adapter, {which}" for name in LINEAR for which in ("down", "up")),
)

#: What each symbol stands for; also the order in which a term's symbols are written.
SYMBOLS: dict[str, str] = {
    "N": "parameters",
    "m": "micro-batches in flight",
    "W": "half-done micro-batches",
    "L": "layers",
    "a": "attention heads",
    "s": "sequence length",
    "b": "micro-batch",
    "h": "hidden size",
    "g": "key-value heads",
    "e": "head width",
    "f": "feed-forward width",
    "V": "vocabulary",
    "U": "vocabulary of all GPUs that share it",
    "P": "learned positions",
    "z": "tokens of a sequence that a GPU holds between layers",
    "w": "sequence length, up to a whole number of 32 tokens",
    "u": "sequence length, up to a whole number of 128 tokens",
    "y": "head width, up to what attention's kernel works on at once",
    "c": "tokens of the loss in a chunk",
    "r": "tokens of the loss in the last chunk",
    "x": "experts",
    "k": "experts chosen for a token",
    "j": "experts on a GPU",
    "D": "tokens that reach a GPU for its experts, each as often as it was chosen",
    "S": "feed-forward width of the shared experts",
    "F": "feed-forward width of an expert",
    "q": "rank of the queries' latents",
    "l": "rank of the keys' and values' latents",
    "E": "head width that positions turn",
    "v": "head width of values",
    "R": "rank of the adapters",
    "K": "optimizer bytes per parameter",
    "T": "positions of the rotary table",
    "t": "tensor-parallel degree",
    "C": "context-parallel degree",
    "i": "expert-parallel degree",
    "n": "tensor-parallel degree of the experts",
    "d": "data-parallel degree",
    "p": "pipeline stages",
    # A flat weight of FSDP's first version (flat.py), in numbers, and what pads its gradient.
    **{
        f"{letter}:{unit}": f"{what}, of the {unit} unit"
        for unit in _FLAT
        for letter, what in {
            "n": "flat weights",
            "m": "flat weights, padded",
            "d": "share of the flat weights",
            "b": "flat gradients to reduce",
            "g": "flat gradients, padded",
            "c": "share of the flat gradients",
            "k": "bytes of no gradient",
        }.items()
    },
    # What a unit of FSDP2's gathers and reduces (sharding.py), in bytes.
    **{
        f"{letter}:{unit}": f"{what}, of the {unit} unit"
        for unit in ("root", "embedding", "layer", "tail")
        for letter, what in {
            "i": "shard to compute with",
            "o": "gathered",
            "u": "whole weights",
            "r": "gradients to reduce",
            "q": "reduced gradients",
            "z": "gradients' shard",
        }.items()
    },
}
_ORDER = {symbol: place for place, symbol in enumerate(SYMBOLS)}
#: A symbol's place among them.
in_order = _ORDER.__getitem__

#: A product of symbol powers, in writing order: (("s", 1), ("h", -1)) is s/h.
Monomial = tuple[tuple[str, int], ...]


def _monomial(powers: Mapping[str, int]) -> Monomial:
    kept = [(symbol, power) for symbol, power in powers.items() if power]
    return tuple(sorted(kept, key=lambda item: _ORDER[item[0]]))


def _times(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for symbol, power in right:
        powers[symbol] = powers.get(symbol, 0) + power
    return _monomial(powers)


def _reciprocal(value: Fraction | int) -> Fraction | int:
    if value in (1, -1):
        return value
    from fractions import Fraction

    return Fraction(1) / value


#: What a formula adds up, in order.
Terms = tuple[tuple[Monomial, "Fraction | int"], ...]
_NO_TERMS: Mapping[Monomial, Fraction | int] = {}


class Formula:
    """A sum of coefficient × symbol powers. Immutable, compared by value."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Mapping[Monomial, Fraction | int] = _NO_TERMS) -> None:
        self._terms: dict[Monomial, Fraction | int] = {
            monomial: coefficient for monomial, coefficient in terms.items() if coefficient
        }

    @property
    def terms(self) -> Mapping[Monomial, Fraction | int]:
        """Coefficient of each product of symbol powers."""
        return self._terms

    def __add__(self, other: Formula | int) -> Formula:
        terms = dict(self._terms)
        for monomial, coefficient in as_formula(other)._terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Formula(terms)

    __radd__ = __add__

    def __neg__(self) -> Formula:
        return Formula({monomial: -value for monomial, value in self._terms.items()})

    def __sub__(self, other: Formula | int) -> Formula:
        return self + -as_formula(other)

    def __mul__(self, other: Formula | int) -> Formula:
        if isinstance(other, int):  # by far the most often
            return _times_number(tuple(self._terms.items()), other)
        result: dict[Monomial, Fraction | int] = {}
        for left, x in self._terms.items():
            for right, y in other._terms.items():
                key = _times(left, right)
                result[key] = result.get(key, 0) + x * y
        return Formula(result)

    __rmul__ = __mul__

    def __truediv__(self, other: Formula | int) -> Formula:
        if isinstance(other, int):
            return _over_number(tuple(self._terms.items()), other)
        divisor = other._terms
        if len(divisor) != 1:
            raise ValueError("a formula divides only by a single term")
        ((monomial, coefficient),) = divisor.items()
        inverse = _monomial({symbol: -power for symbol, power in monomial})
        return self * Formula({inverse: _reciprocal(coefficient)})

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            other = as_formula(other)
        return isinstance(other, Formula) and self._terms == other._terms

    def __hash__(self) -> int:
        return hash(frozenset(self._terms.items()))

    def __repr__(self) -> str:
        return f"Formula({self.text()})"

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The whole number this comes to for the run's ``values``.

        Raises ``ArithmeticError`` if it is not whole: a tensor has no fraction of a byte, so a
        remainder means that something was divided that cannot be.
        """
        # Whole numbers throughout (Fraction arithmetic would cost most of an estimate's time):
        # each term is a numerator over a denominator, brought together at the end.
        top, bottom = 0, 1
        for monomial, coefficient in self._terms.items():
            numerator, denominator = coefficient.numerator, coefficient.denominator
            for symbol, power in monomial:
                if power == 1:  # by far the most often
                    numerator *= values[symbol]
                elif power > 0:
                    numerator *= values[symbol] ** power
                else:
                    denominator *= values[symbol] ** -power
            if denominator == bottom:
                top += numerator
            else:
                top, bottom = top * denominator + numerator * bottom, bottom * denominator
        result, rest = divmod(top, bottom)
        if rest:
            raise ArithmeticError(f"{self.text()} is not whole for {dict(values)}")
        return result

    def text(
        self, *, factor: Formula | None = None, values: Mapping[str, int] | None = None
    ) -> str:
        """As one line of text: ``34·s·b·h + 5·a·s²·b``, or with ``factor`` taken out of the sum.

        With ``values`` the run's numbers stand for the symbols: ``34 × 4,096 × 1 × 4,096 + …``.
        """
        style = _Style(values)
        if factor is not None:
            inner = self / factor
            if len(inner._terms) != 1:
                return f"{factor.text(values=values)}{style.times}({inner.text(values=values)})"
        if not self._terms:
            return "0"
        return " + ".join(style.term(*term) for term in self._terms.items()).replace("+ -", "− ")


# The same few sizes are worked out again and again. Equal ones of another order are others here, as
# they are written otherwise.


@lru_cache(maxsize=1024)
def _times_number(terms: Terms, number: int) -> Formula:
    return Formula({monomial: value * number for monomial, value in terms})


@lru_cache(maxsize=512)
def _over_number(terms: Terms, number: int) -> Formula:
    inverse = _reciprocal(number)
    return Formula({monomial: value * inverse for monomial, value in terms})


def split_term(monomial: Monomial) -> tuple[Monomial, Monomial]:
    """A term's symbols above and below the fraction bar, all powers positive."""
    above = tuple((symbol, power) for symbol, power in monomial if power > 0)
    below = tuple((symbol, -power) for symbol, power in monomial if power < 0)
    return above, below


class _Style:
    """How terms are written: in symbols, or in a run's numbers."""

    def __init__(self, values: Mapping[str, int] | None) -> None:
        self.values = values
        self.times, self.over = ("·", "/") if values is None else (" × ", " / ")

    def term(self, monomial: Monomial, coefficient: Fraction | int) -> str:
        above, below = split_term(monomial)
        factors = [self._power(*item) for item in above]
        if coefficient.numerator != 1 or not factors:
            factors.insert(0, f"{coefficient.numerator:,}")
        divisors = [self._power(*item) for item in below]
        if coefficient.denominator != 1:
            divisors.insert(0, f"{coefficient.denominator:,}")
        text = self.times.join(factors)
        if len(divisors) > 1:
            return f"{text}{self.over}({self.times.join(divisors)})"
        return f"{text}{self.over}{divisors[0]}" if divisors else text

    def _power(self, symbol: str, power: int) -> str:
        base = symbol if self.values is None else f"{self.values[symbol]:,}"
        return base if power == 1 else base + str(power).translate(_SUPERSCRIPTS)


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def as_formula(value: Formula | int) -> Formula:
    """A whole number as a formula without symbols; a formula as it is."""
    return value if isinstance(value, Formula) else _number(value)


@lru_cache(maxsize=128)
def _number(value: int) -> Formula:
    return Formula({(): value})


@lru_cache(maxsize=512)
def symbol(name: str) -> Formula:
    """The formula that is one symbol of :data:`SYMBOLS`."""
    if name not in SYMBOLS:
        raise ValueError(f"{name!r} is not a symbol; they are {', '.join(SYMBOLS)}")
    return Formula({((name, 1),): 1})


def product(factors: Iterable[str | int]) -> Formula:
    """Symbols and whole numbers multiplied: ``product(("s", "b", 4, "h"))`` is 4·s·b·h."""
    return _product(tuple(factors))


@lru_cache(maxsize=512)  # the layers' code names the same few shapes again and again
def _product(listed: tuple[str | int, ...]) -> Formula:
    powers: dict[str, int] = {}
    for factor in listed:
        if isinstance(factor, str):
            powers[factor] = powers.get(factor, 0) + 1
    coefficient = prod(factor for factor in listed if isinstance(factor, int))
    return Formula({_monomial(powers): coefficient})


def total(formulas: Iterable[Formula]) -> Formula:
    """The sum; 0 for none."""
    return sum(formulas, Formula())
