"""A traced step beside its prediction: what the tables of traces share."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from places import DOCS
from table import Cell, Column
from training_memory.units import gb, percent

Row = Mapping[str, str]

#: What a trace calls a precision, and the recipe that it is.
RECIPES: Mapping[str, str] = {
    "fp32": "fp32-adam",
    "autocast": "autocast-adam",
    "bf16": "bf16-adam",
    "master": "mixed-adam",
    "master-fp32-grad": "mixed-adam-fp32-grad",
}
#: An optimizer of the traces as a run names it, where that is in two fields.
_ADAMW = {
    f"adamw-{kernel}": ("adamw", kernel) for kernel in ("fused", "foreach", "forloop", "deepspeed")
}
#: What a row of the traces and a run's JSON call the same.
_SAME = ("model", "sequence", "micro_batch", "micro_batches", "recompute", "implementation")
_DIGITS = 4

#: The last columns of a table of steps: see :func:`end`.
END = (
    Column(heading="Traced", name="traced_bytes"),
    Column(heading="Predicted", name="predicted_bytes"),
    Column(heading="Error", name="error_percent"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One traced step and its prediction, in bytes."""

    row: Row
    predicted: int
    traced: int

    @property
    def apart(self) -> int:
        """How far the prediction is off."""
        return abs(self.predicted - self.traced)


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of one of the files of ``docs/data/traces``."""
    with (DOCS / "data" / "traces" / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def shape_of(row: Row) -> dict[str, str]:
    """What a row changes in its model's shape."""
    return dict(pair.split("=") for pair in row["shape"].split())


def request_of(row: Row) -> dict[str, object]:
    """The JSON of the run that a row of PyTorch's steps is of, as far as all of them say it."""
    optimizer, kernel = _ADAMW.get(row["optimizer"], (row["optimizer"], None))
    return {
        **{name: row[name] for name in _SAME},
        "shape": shape_of(row),
        "recipe": RECIPES[row["precision"]],
        "attention": row["attention"],
        "optimizer": optimizer,
        "optimizer_kernel": kernel,
        "clip": row["clip"] == "yes",
    }


def by_error(steps: Sequence[Compared]) -> list[Compared]:
    """The steps in the order of their errors, the worst last."""
    return sorted(steps, key=lambda one: one.apart / one.traced)


def at(ordered: Sequence[Compared], share: float) -> Compared:
    """The step at a share of the order, counted from the nearest: 0.5 is the median."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def exact(steps: Sequence[Compared]) -> Cell:
    """How many are right to the byte."""
    return Cell(sum(one.apart == 0 for one in steps))


def error(one: Compared, digits: int = _DIGITS) -> Cell:
    """How far a prediction is off, in percent of what was traced."""
    value = percent(one.apart, one.traced, digits)
    return Cell(value, f"{value} %")


def end(one: Compared, digits: int = _DIGITS) -> tuple[Cell, Cell, Cell]:
    """The cells of :data:`END`."""
    return (
        Cell(one.traced, gb(one.traced, 2)),
        Cell(one.predicted, gb(one.predicted, 2)),
        error(one, digits),
    )
