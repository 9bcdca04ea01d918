"""All comparisons in one table: what PyTorch does, what others measured, and how far off we are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import accuracy_tables
import block_tables
import compiled_tables
import megatron_tables
import sharded_tables
import tuning_tables
from compared import Compared
from measured import Counter, measured
from table import Cell, Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A kind of comparison: the error of each, as a share, by the row's name."""

    name: str
    errors: Sequence[tuple[float, str]]


def _lines() -> Iterator[_Line]:
    for name, some in (
        ("whole steps, one GPU", accuracy_tables.compared()),
        ("whole steps, several GPUs", sharded_tables.compared()),
        ("fine-tuning", tuning_tables.compared()),
        ("Megatron's stages", megatron_tables.stages()),
    ):
        yield _Line(name=f"Traced: {name}", errors=[_traced(one) for one in some])
    yield _Line(
        name="Traced: kept by a layer",
        errors=[
            (_off(one.our_bytes, one.traced_bytes), one.row["block"])
            for one in block_tables.blocks()
        ],
    )
    yield _Line(
        name="Traced: kept by a compiled layer",
        errors=[
            (_off(one.our_bytes, one.traced_bytes), one.row["case"])
            for one in compiled_tables.layers()
        ],
    )
    scored = [one for one in measured() if one.is_scored]
    losses = [one for one in scored if one.row["task"] == "kernel"]
    steps = [one for one in scored if one not in losses]
    for name, some_rows in (
        ("whole steps, allocated", [one for one in steps if one.counter is Counter.ALLOCATED]),
        ("whole steps, reserved", [one for one in steps if one.counter is Counter.RESERVED]),
        ("losses by themselves", losses),
    ):
        yield _Line(
            name=f"Published: {name}",
            errors=[(abs(one.apart) / one.bytes, one.id) for one in some_rows],
        )


def _traced(one: Compared) -> tuple[float, str]:
    return _off(one.predicted, one.traced), one.row["step"]


def _off(ours: int, theirs: int) -> float:
    return abs(ours - theirs) / theirs


def glance() -> Table:
    """What is compared with what, how many are equal to the byte, and the errors of the others."""
    return Table(
        columns=(
            Column(heading="What", name="what", right=False),
            Column(heading="Rows", name="count"),
            Column(heading="Exact", name="exact"),
            Column(heading="Median", name="median_error_percent"),
            Column(heading="90th", name="p90_error_percent"),
            Column(heading="95th", name="p95_error_percent"),
            Column(heading="Worst", name="worst_error_percent"),
            Column(heading="Which", name="worst", right=False),
        ),
        rows=tuple(_row(line) for line in _lines()),
    )


def _row(line: _Line) -> tuple[Cell, ...]:
    ordered = sorted(line.errors)
    worst = ordered[-1]
    return (
        Cell(line.name),
        Cell(len(ordered)),
        Cell(sum(not error for error, _ in ordered)),
        *(_percentile(ordered, share) for share in (0.5, 0.9, 0.95)),
        _percent(worst[0]),
        Cell(worst[1] if worst[0] else "", worst[1] if worst[0] else "none"),
    )


def _percentile(ordered: Sequence[tuple[float, str]], share: float) -> Cell:
    return _percent(ordered[min(len(ordered) - 1, int(share * len(ordered)))][0])


def _percent(error: float) -> Cell:
    value = f"{100 * error:.2f}"
    return Cell(value, f"{value} %" if error else "0")
