"""The Decoder's tables, from what its trainer counted: the same in the build and in a page.

A page's own Python imports this file too, so it stands on the trainer, the calculator and
``table.py`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log10

from decoder import DECODER, Checked, Comparison, Count, Pair
from decoder.comparison import VALUE_BYTES
from table import Cell, Column, Table
from training_memory.blocks.paper import LAYER
from training_memory.formula import product

_NONE = "–"
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def kept(count: Count, comparison: Comparison) -> Table:
    """What one block keeps for one sequence by the trainer and by the formula, in short.

    Raises ValueError where the formula's bytes are not those of the rows that were compared.
    """
    sizes = {"s": DECODER.sequence, "b": 1, "h": DECODER.hidden, "a": DECODER.heads}
    formula = LAYER.kept_bytes()
    if formula.evaluate(sizes) != VALUE_BYTES * comparison.textbook_values:
        raise ValueError("the rows that were compared do not add up to the formula")
    written = formula.text(factor=product(("s", "b", "h")))
    return Table(
        columns=(
            Column(heading="One sequence, one block", name="ledger", right=False),
            Column(heading="Values", name="values"),
            Column(heading="Bytes, two a value", name="bytes"),
        ),
        rows=(
            _kept("The running trainer keeps", comparison.counted_values),
            _kept("of which its backward pass reads", count.block_values_read),
            _kept(f"The formula, {written}", comparison.textbook_values),
            (
                Cell("Trainer minus formula", "**Trainer minus formula**"),
                _signed(comparison.difference, strong=True),
                _signed(VALUE_BYTES * comparison.difference, strong=True),
            ),
        ),
    )


def _kept(name: str, values: int) -> tuple[Cell, ...]:
    return (Cell(name), _whole(values), _whole(VALUE_BYTES * values))


def tape(count: Count) -> Table:
    """Every value that one block keeps for one sequence, by name, and who reads it."""
    return Table(
        columns=(
            Column(heading="Kept value", name="value", right=False),
            Column(heading="Shape", name="shape"),
            Column(heading="Values", name="values"),
            Column(heading="Read", name="read", right=False),
            Column(heading="What the backward pass needs it for", name="why", right=False),
        ),
        rows=(
            *(
                (
                    Cell(row.name),
                    Cell(_shape(row.shape)),
                    _whole(row.values),
                    Cell("yes" if row.read else "no"),
                    Cell(row.why.removeprefix("not read: ")),
                )
                for row in count.block
            ),
            (
                Cell("total", "**Total**"),
                Cell(""),
                _whole(count.block_values, strong=True),
                Cell(""),
                Cell(""),
            ),
        ),
    )


def rows(comparison: Comparison) -> Table:
    """Both ledgers row by row, with the reason for each line."""
    return Table(
        columns=(
            Column(heading="The trainer keeps", name="trainer", right=False),
            Column(heading="The formula keeps", name="formula", right=False),
            Column(heading="Trainer", name="trainer_values"),
            Column(heading="Formula", name="formula_values"),
            Column(heading="Difference", name="difference"),
            Column(heading="Why", name="reason", right=False),
        ),
        rows=(
            *map(_row, comparison.pairs),
            (
                Cell("total", "**Total**"),
                Cell(""),
                _whole(comparison.counted_values, strong=True),
                _whole(comparison.textbook_values, strong=True),
                _signed(comparison.difference, strong=True),
                Cell(""),
            ),
        ),
    )


def _row(pair: Pair) -> tuple[Cell, ...]:
    return (
        Cell(pair.counted or "", pair.counted or _NONE),
        Cell(pair.textbook or "", pair.textbook or _NONE),
        _whole(pair.counted_values),
        _whole(pair.textbook_values),
        _signed(pair.difference),
        Cell(pair.reason),
    )


def causes(comparison: Comparison) -> Table:
    """The difference by its causes, each with the rows it is in."""
    lines = []
    for cause, difference in comparison.by_cause.items():
        where = [
            pair.counted or pair.textbook or ""
            for pair in comparison.pairs
            if pair.cause is cause and pair.difference
        ]
        if not where:
            continue
        name = f"{cause[:1].upper()}{cause[1:]}"
        lines.append((Cell(name), Cell(", ".join(where)), _signed(difference)))
    return Table(
        columns=(
            Column(heading="Cause", name="cause", right=False),
            Column(heading="In these rows", name="rows", right=False),
            Column(heading="Difference", name="difference"),
        ),
        rows=(
            *lines,
            (
                Cell("total", "**Total**"),
                Cell(""),
                _signed(comparison.difference, strong=True),
            ),
        ),
    )


def gradients(checked: Iterable[Checked]) -> Table:
    """Each tensor's largest error against numerical derivatives, as a bound."""
    return Table(
        columns=(
            Column(heading="Tensor", name="tensor", right=False),
            Column(heading="Shape", name="shape"),
            Column(heading="Checked one by one", name="elements"),
            Column(heading="Largest error", name="error_bound"),
            Column(heading="All at once", name="direction_error_bound"),
        ),
        rows=tuple(
            (
                Cell(one.tensor),
                Cell(_shape(one.shape)),
                Cell(f"{one.elements:,} of {one.values:,}"),
                _bound(one.max_relative_error),
                _bound(one.direction_relative_error),
            )
            for one in checked
        ),
    )


def losses(steps: Sequence[float]) -> Table:
    """The loss of each step."""
    return Table(
        columns=(
            Column(heading="Step", name="step"),
            Column(heading="Loss, nats a character", name="loss_nats"),
        ),
        rows=tuple((Cell(step), Cell(loss_text(loss))) for step, loss in enumerate(steps, start=1)),
    )


def loss_text(loss: float) -> str:
    """A loss as it is shown: beyond three decimals, platforms round in their own ways."""
    return f"{loss:.3f}"


def bound(error: float) -> int:
    """The exponent of a power of ten that ``error`` is below: -9, -6, -3, 0 and so on.

    Steps of a thousand, and none below -9: an error here is what rounding leaves, and rounding
    differs from one platform to the next. A table that said more would say something else there.
    """
    if error <= 0:
        return -9
    return max(-9, 3 * int(log10(error) // 3) + 3)


def power(exponent: int) -> str:
    """A power of ten in print: ``"10⁻⁹"``."""
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def _bound(error: float) -> Cell:
    exponent = bound(error)
    return Cell(f"<1e{exponent}", f"below {power(exponent)}")


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _whole(number: int, *, strong: bool = False) -> Cell:
    return Cell(number, _strong(f"{number:,}") if strong else f"{number:,}")


def _signed(number: int, *, strong: bool = False) -> Cell:
    shown = f"{number:+,}".replace("-", "−") if number else "0"
    return Cell(number, _strong(shown) if strong else shown)


def _strong(words: str) -> str:
    return f"**{words}**"
