"""How near the calculator comes to Megatron-Core: every traced stage beside what is predicted.

The traces are data (docs/data/traces, made by scripts/measure/record_megatron.py); the predictions
are asked of the calculator whenever the tables are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from compared import END, Compared, Row, at, by_error, end, error, exact, rows_of, shape_of
from table import Cell, Column, Table
from training_memory import catalog
from training_memory.rank import rank_at
from training_memory.run import Run
from training_memory.step import step
from training_memory.walk import walk

_COUNTS = (
    "sequence",
    "micro_batch",
    "micro_batches",
    "tensor",
    "pipeline",
    "interleave",
    "data",
    "context",
    "expert",
)
_DIGITS = 3


def run_of(row: Row) -> Run:
    """The run that a row of the traces is a stage of."""
    return Run.from_json(
        {
            "implementation": "megatron",
            "gpu": None,
            "model": row["model"],
            "shape": shape_of(row),
            **{name: row[name] for name in _COUNTS},
            "sequence_parallel": row["sequence_parallel"] == "yes",
            "zero": 1 if row["distributed_optimizer"] == "yes" else 0,
            "recompute": row["recompute"],
            "loss": row["loss"],
            "dropout": row["dropout"] == "yes",
            "mtp_layers": int(row["mtp_layers"]),
            "routing": row["routing"],
            "permutation": "unfused" if row["permutation"] == "unfused" else None,
            # A dense model has no experts that GPUs could share.
            "expert_tensor": row["expert_tensor"] if row["expert"] != "1" else None,
        }
    )


@cache
def stages() -> tuple[Compared, ...]:
    """Every traced stage, in the traces' order."""
    return tuple(_stage(row) for row in rows_of("megatron-steps.csv"))


def _stage(row: Row) -> Compared:
    run = run_of(row)
    return Compared(
        row=row,
        predicted=walk(step(run, rank_at(run, int(row["stage"])))).peak,
        traced=max(int(row["forward_bytes"]), int(row["backward_bytes"])),
    )


def _kinds() -> Mapping[str, tuple[Compared, ...]]:
    def split(one: Compared) -> str:
        if one.row["interleave"] != "1":
            return "Pipeline, interleaved"
        if one.row["pipeline"] != "1":
            return "Pipeline, one forward, one backward"
        if catalog.get(one.row["model"]).experts:
            return "One stage, experts"
        return "One stage" if one.row["tensor"] == "1" else "One stage, tensor-parallel"

    kinds: dict[str, list[Compared]] = {}
    for one in stages():
        kinds.setdefault(split(one), []).append(one)
    return {name: tuple(found) for name, found in kinds.items()}


def summary() -> Table:
    """By kind of split: how many stages, how many exact, and the errors of the others."""
    rows = []
    for name, found in (*_kinds().items(), ("**All**", stages())):
        ordered = by_error(found)
        rows.append(
            (
                Cell(name.strip("*"), name),
                Cell(len(found)),
                exact(found),
                error(at(ordered, 0.5), _DIGITS),
                error(ordered[-1], _DIGITS),
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


_WORDS = (
    *(
        "step",
        "model",
        "shape",
        "recompute",
        "loss",
        "dropout",
        "mtp_layers",
        *_COUNTS[3:7],
        "expert",
        "expert_tensor",
    ),
    *("routing", "stage"),
)


def steps() -> Table:
    """Every stage: what it is of, its traced and its predicted peak, and the error."""
    return Table(
        columns=(
            *(Column(heading=name.capitalize(), name=name, right=False) for name in _WORDS),
            *END,
        ),
        rows=tuple(
            (
                *(Cell(one.row[name]) for name in _WORDS),
                *end(one, _DIGITS),
            )
            for one in stages()
        ),
    )
