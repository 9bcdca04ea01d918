"""The Decoder's own count beside the textbook's: which row answers which, and why they differ.

The textbook's ledger (Korthikanti et al. 2022, arXiv:2205.05198, §4.1) is in bytes, two for a value
and one for each element of a dropout mask. Here its bytes are halved into two-byte values, so that
a mask's element is half a value, and one ledger can be taken from the other row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from .count import CountRow, count_kept
from .model import DECODER, Shape

VALUE_BYTES = 2
"""The textbook's bytes for a value, 16 bits."""


class BytesFormula(Protocol):
    """A number of bytes in the symbols s, b, h and a."""

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The bytes for these sizes."""
        ...


class TextbookRow(Protocol):
    """What is used of a row of the calculator's textbook ledger."""

    @property
    def name(self) -> str:
        """The tensor."""
        ...

    @property
    def bytes(self) -> BytesFormula:
        """Its bytes in a layer, before any splitting."""
        ...


class Cause(StrEnum):
    """Why the two ledgers differ in a row."""

    SAME = "both keep it"
    WIDTH = "the formula's FFN is four times as wide as the model"
    DROPOUT = "the formula has dropout"
    NORM = "the tape keeps what a norm works out as well as its input"
    PRODUCED = "the tape keeps what no gradient needs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One line of the comparison: the counted row, the textbook's, or both; in two-byte values.

    A name is None where that ledger has no such row, and its values are then 0.
    ``difference`` is counted minus textbook.
    """

    counted: str | None
    textbook: str | None
    counted_values: int
    textbook_values: int
    cause: Cause
    reason: str

    @property
    def difference(self) -> int:
        """How many values more the trainer keeps."""
        return self.counted_values - self.textbook_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Every row of both ledgers, each exactly once."""

    pairs: tuple[Pair, ...]

    @property
    def counted_values(self) -> int:
        """What the trainer keeps for one sequence in one block."""
        return sum(pair.counted_values for pair in self.pairs)

    @property
    def textbook_values(self) -> int:
        """What the formula has for the same shape, in two-byte values."""
        return sum(pair.textbook_values for pair in self.pairs)

    @property
    def difference(self) -> int:
        """Counted minus textbook."""
        return sum(pair.difference for pair in self.pairs)

    @property
    def by_cause(self) -> dict[Cause, int]:
        """The difference, cause by cause; it adds up to :attr:`difference`."""
        return {
            cause: sum(pair.difference for pair in self.pairs if pair.cause is cause)
            for cause in Cause
        }


_GOES_BACK = "The formula's norm goes back from it, the trainer's from the next row."
_SMALL = "One value a token. The formula leaves out what has no factor h (§4)."
_MASK = "Dropout's mask, a byte an element and so half a value. The Decoder drops nothing."
_NARROWER = (
    "The formula has an FFN 4 times as wide as the model; this one is {width} times as wide."
)

# (counted, textbook, cause, reason), in the order of the forward pass.
_PAIRS: tuple[tuple[str | None, str | None, Cause, str], ...] = (
    ("input", "first layer norm's input", Cause.SAME, "What enters the layer. " + _GOES_BACK),
    (
        "norm 1 normalised",
        None,
        Cause.NORM,
        "The formula makes it again from the norm's input.",
    ),
    ("norm 1 inverse deviation", None, Cause.NORM, _SMALL),
    (
        "norm 1 output",
        "query, key and value projections' input",
        Cause.SAME,
        "One input for three projections, kept once.",
    ),
    ("queries", "queries", Cause.SAME, "For the keys' gradient."),
    ("keys", "keys", Cause.SAME, "For the queries' gradient."),
    ("values", "values", Cause.SAME, "For the weights' gradient."),
    (
        "scores",
        None,
        Cause.PRODUCED,
        "Softmax's gradient needs only its output, so the formula keeps no scores.",
    ),
    ("weights", "softmax output", Cause.SAME, "One for each pair of tokens in each head."),
    (None, "softmax dropout mask", Cause.DROPOUT, _MASK),
    (
        None,
        "attention weights after dropout",
        Cause.DROPOUT,
        "With dropout the weights exist twice, before and after it.",
    ),
    ("context", "output projection's input", Cause.SAME, "The heads' results, side by side."),
    (
        "projection output",
        None,
        Cause.PRODUCED,
        "It is added to the input at once, and a sum needs nothing kept.",
    ),
    (None, "attention dropout mask", Cause.DROPOUT, _MASK),
    (
        "residual sum",
        "second layer norm's input",
        Cause.SAME,
        "What the attention half hands to the FFN half. " + _GOES_BACK,
    ),
    (
        "norm 2 normalised",
        None,
        Cause.NORM,
        "The formula makes it again from the norm's input.",
    ),
    ("norm 2 inverse deviation", None, Cause.NORM, _SMALL),
    (
        "norm 2 output",
        "first linear layer's input",
        Cause.SAME,
        "For the widening weight's gradient.",
    ),
    ("FFN pre-activation", "GELU's input", Cause.WIDTH, _NARROWER),
    ("FFN activation", "second linear layer's input", Cause.WIDTH, _NARROWER),
    (
        "FFN output",
        None,
        Cause.PRODUCED,
        "It is added to the residual at once; the sum is the next layer's input, counted there.",
    ),
    (None, "MLP dropout mask", Cause.DROPOUT, _MASK),
)


def compare(
    paper_rows: Iterable[TextbookRow],
    *,
    shape: Shape = DECODER,
    counted: Iterable[CountRow] | None = None,
) -> Comparison:
    """Pair the textbook's rows for one layer with the trainer's, for one sequence of ``shape``.

    ``counted`` defaults to a count made now. Raises ValueError naming any row, of either ledger,
    that has no place in the comparison or is missing from it, and for a shape whose masks come to
    half a value.
    """
    sizes = {"s": shape.sequence, "b": 1, "h": shape.hidden, "a": shape.heads}
    ours = {row.name: row.values for row in (counted or count_kept(shape=shape))}
    theirs = {row.name: _in_values(row, sizes) for row in paper_rows}
    _check_complete("the count", set(ours), {pair[0] for pair in _PAIRS})
    _check_complete("the textbook's ledger", set(theirs), {pair[1] for pair in _PAIRS})
    return Comparison(
        pairs=tuple(
            Pair(
                counted=our_name,
                textbook=their_name,
                counted_values=ours[our_name] if our_name else 0,
                textbook_values=theirs[their_name] if their_name else 0,
                cause=cause,
                reason=reason.format(width=f"{shape.ffn / shape.hidden:g}"),
            )
            for our_name, their_name, cause, reason in _PAIRS
        )
    )


def _in_values(row: TextbookRow, sizes: Mapping[str, int]) -> int:
    values, rest = divmod(row.bytes.evaluate(sizes), VALUE_BYTES)
    if rest:
        raise ValueError(f"{row.name}: an odd number of bytes is no whole number of values")
    return values


def _check_complete(ledger: str, found: set[str], expected: set[str | None]) -> None:
    """Every row has its place, and every place its row."""
    names = {name for name in expected if name is not None}
    if extra := sorted(found - names):
        raise ValueError(f"{ledger} has rows that nothing is paired with: {', '.join(extra)}")
    if missing := sorted(names - found):
        raise ValueError(f"{ledger} lacks rows that are compared: {', '.join(missing)}")
