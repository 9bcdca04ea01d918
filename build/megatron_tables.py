"""How near the calculator comes to Megatron-Core: every traced stage beside what is predicted.

The traces are data (docs/data/traces, made by scripts/measure/record_megatron.py); the predictions
are asked of the calculator whenever the tables are made.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from places import DOCS
from table import Cell, Column, Table
from training_memory.rank import rank_at
from training_memory.run import Run
from training_memory.step import step
from training_memory.units import gb, percent
from training_memory.walk import walk

_STEPS = DOCS / "data" / "traces" / "megatron-steps.csv"
_COUNTS = (
    "sequence",
    "micro_batch",
    "micro_batches",
    "tensor",
    "pipeline",
    "interleave",
    "data",
    "context",
)
_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One traced stage of a step and its prediction, in bytes."""

    row: Mapping[str, str]
    predicted: int
    traced: int

    @property
    def apart(self) -> int:
        """How far the prediction is off."""
        return abs(self.predicted - self.traced)


def run_of(row: Mapping[str, str]) -> Run:
    """The run that a row of the traces is a stage of."""
    return Run.from_json(
        {
            "implementation": "megatron",
            "gpu": None,
            "model": row["model"],
            "shape": dict(pair.split("=") for pair in row["shape"].split()),
            **{name: row[name] for name in _COUNTS},
            "sequence_parallel": row["sequence_parallel"] == "yes",
            "zero": 1 if row["distributed_optimizer"] == "yes" else 0,
            "recompute": row["recompute"],
            "loss": row["loss"],
        }
    )


@cache
def stages() -> tuple[Stage, ...]:
    """Every traced stage, in the traces' order."""
    with _STEPS.open(newline="", encoding="utf-8") as file:
        return tuple(_stage(row) for row in csv.DictReader(file))


def _stage(row: Mapping[str, str]) -> Stage:
    run = run_of(row)
    return Stage(
        row=row,
        predicted=walk(step(run, rank_at(run, int(row["stage"])))).peak,
        traced=max(int(row["forward_bytes"]), int(row["backward_bytes"])),
    )


def _share(one: Stage) -> Cell:
    value = percent(one.apart, one.traced, _DIGITS)
    return Cell(value, f"{value} %")


def _kinds() -> Mapping[str, tuple[Stage, ...]]:
    def split(one: Stage) -> str:
        if one.row["interleave"] != "1":
            return "Pipeline, interleaved"
        if one.row["pipeline"] != "1":
            return "Pipeline, one forward, one backward"
        return "One stage" if one.row["tensor"] == "1" else "One stage, tensor-parallel"

    kinds: dict[str, list[Stage]] = {}
    for one in stages():
        kinds.setdefault(split(one), []).append(one)
    return {name: tuple(found) for name, found in kinds.items()}


def summary() -> Table:
    """By kind of split: how many stages, how many exact, and the errors of the others."""
    rows = []
    for name, found in (*_kinds().items(), ("**All**", stages())):
        ordered = sorted(found, key=lambda one: one.apart / one.traced)
        rows.append(
            (
                Cell(name.strip("*"), name),
                Cell(len(found)),
                Cell(sum(one.apart == 0 for one in found)),
                _share(ordered[len(ordered) // 2]),
                _share(ordered[-1]),
                Cell(ordered[-1].row["step"]) if ordered[-1].apart else Cell("", "none"),
            )
        )
    return Table(
        columns=(
            Column(heading="Split", name="split", right=False),
            Column(heading="Stages", name="stages"),
            Column(heading="Exact to the byte", name="exact"),
            Column(heading="Median error", name="median_error_percent"),
            Column(heading="Worst", name="worst_error_percent"),
            Column(heading="Which", name="worst_step", right=False),
        ),
        rows=tuple(rows),
    )


_WORDS = ("step", "model", "shape", "recompute", "loss", *_COUNTS[3:7], "stage")


def steps() -> Table:
    """Every stage: what it is of, its traced and its predicted peak, and the error."""
    return Table(
        columns=(
            *(Column(heading=name.capitalize(), name=name, right=False) for name in _WORDS),
            Column(heading="Traced", name="traced_bytes"),
            Column(heading="Predicted", name="predicted_bytes"),
            Column(heading="Error", name="error_percent"),
        ),
        rows=tuple(
            (
                *(Cell(one.row[name]) for name in _WORDS),
                Cell(one.traced, gb(one.traced, 2)),
                Cell(one.predicted, gb(one.predicted, 2)),
                _share(one),
            )
            for one in stages()
        ),
    )
