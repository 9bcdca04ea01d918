"""How near the calculator comes to PyTorch on several GPUs, by framework and parallelism.

The traces are data (docs/data/traces/sharded-*.csv, made by scripts/measure); the predictions are
asked of the calculator whenever the tables are made.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache

from accuracy_tables import OPTIMIZERS, RECIPES, Compared
from places import DOCS
from table import Cell, Column, Table
from training_memory.estimate import estimate
from training_memory.run import Run
from training_memory.units import gb, percent

_STEPS = DOCS / "data" / "traces" / "sharded-steps.csv"
_FRAMEWORKS = {"huggingface": "Hugging Face", "torchtitan": "torchtitan"}
_WAYS = {"ddp": "DDP", "fsdp2": "FSDP2"}
_DIGITS = 4


def run_of(row: Mapping[str, str]) -> Run:
    """The run that a row of the traces is of."""
    optimizer, kernel = OPTIMIZERS[row["optimizer"]]
    request: dict[str, object] = {
        "model": row["model"],
        "shape": dict(pair.split("=") for pair in row["shape"].split()),
        "sequence": row["sequence"],
        "micro_batch": row["micro_batch"],
        "micro_batches": row["micro_batches"],
        "recipe": RECIPES[row["precision"]],
        "recompute": row["recompute"],
        "implementation": row["implementation"],
        "attention": row["attention"],
        "optimizer": optimizer,
        "optimizer_kernel": kernel,
        "clip": row["clip"] == "yes",
        "data": int(row["data"]) * int(row["replicas"]),
        "tensor": row["tensor"],
        "sequence_parallel": row["sequence_parallel"] == "yes",
    }
    if row["sharding"] == "ddp":
        request |= {"sharding": "ddp", "bucket_views": row["bucket_views"] == "yes"}
    elif row["sharding"] == "fsdp2":
        request |= {
            "sharding": "fsdp2",
            "replicate": row["replicas"],
            "reshard_after_forward": row["reshard"] == "yes",
            "fsdp_units": row["wrap"],
            "prefetch": row["prefetch"],
            "reduce_dtype": row["reduce_dtype"],
        }
    return Run.from_json(request)


@cache
def compared() -> tuple[Compared, ...]:
    """Every traced step that a run can ask for: of the first step there is no run."""
    with _STEPS.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["turn"] != "1"]
    return tuple(
        Compared(
            row=row,
            predicted=estimate(run_of(row)).worst.peak_bytes,
            traced=int(row["peak_bytes"]),
        )
        for row in rows
    )


def way(row: Mapping[str, str]) -> str:
    """How the GPUs of a row share the model."""
    parts = [_WAYS[row["sharding"]]] if row["sharding"] in _WAYS else []
    if row["replicas"] != "1":
        parts[-1] += ", hybrid"
    if row["tensor"] != "1":
        sequence = " and sequence" if row["sequence_parallel"] == "yes" else ""
        parts.append(f"tensor{sequence} parallel")
    return " with ".join(parts)


def _error(one: Compared) -> Cell:
    value = percent(one.apart, one.traced, _DIGITS)
    return Cell(value, f"{value} %")


def summary() -> Table:
    """By framework and parallelism: how many steps, how many exact, and the errors."""
    kinds: dict[tuple[str, str], list[Compared]] = {}
    for one in compared():
        kinds.setdefault((_FRAMEWORKS[one.row["implementation"]], way(one.row)), []).append(one)
    rows = []
    for (framework, parallelism), steps_ in sorted(kinds.items()):
        ordered = sorted(steps_, key=lambda one: one.apart / one.traced)
        rows.append(
            (
                Cell(framework),
                Cell(parallelism),
                Cell(len(steps_)),
                Cell(sum(one.apart == 0 for one in steps_)),
                _error(ordered[len(ordered) // 2]),
                _error(ordered[-1]),
            )
        )
    return Table(
        columns=(
            Column(heading="Framework", name="framework", right=False),
            Column(heading="Parallelism", name="parallelism", right=False),
            Column(heading="Steps", name="steps"),
            Column(heading="Exact to the byte", name="exact"),
            Column(heading="Median error", name="median_error_percent"),
            Column(heading="Worst", name="worst_error_percent"),
        ),
        rows=tuple(rows),
    )


def steps() -> Table:
    """Every step: what it is, its traced and its predicted peak, and the error."""
    return Table(
        columns=(
            Column(heading="Step", name="step", right=False),
            Column(heading="Framework", name="framework", right=False),
            Column(heading="Model", name="model", right=False),
            Column(heading="Layers", name="layers"),
            Column(heading="GPUs", name="gpus"),
            Column(heading="Parallelism", name="parallelism", right=False),
            Column(heading="Told", name="told", right=False),
            Column(heading="Precision", name="precision", right=False),
            Column(heading="Recompute", name="recompute", right=False),
            Column(heading="Traced", name="traced_bytes"),
            Column(heading="Predicted", name="predicted_bytes"),
            Column(heading="Error", name="error_percent"),
        ),
        rows=tuple(_row(one) for one in compared()),
    )


def _row(one: Compared) -> tuple[Cell, ...]:
    row, run = one.row, run_of(one.row)
    return (
        Cell(row["step"]),
        Cell(_FRAMEWORKS[row["implementation"]]),
        Cell(row["model"]),
        Cell(run.model.layers),
        Cell(run.layout.gpus),
        Cell(way(row)),
        Cell(_told(row)),
        Cell(row["precision"]),
        Cell(row["recompute"]),
        Cell(one.traced, gb(one.traced, 2)),
        Cell(one.predicted, gb(one.predicted, 2)),
        _error(one),
    )


def _told(row: Mapping[str, str]) -> str:
    """What the framework was told that it does not do by itself."""
    found = []
    if row["sharding"] == "fsdp2":
        found += [
            text
            for text, told in (
                ("the rest in one unit", row["wrap"] == "layers"),
                ("not resharded", row["reshard"] == "no"),
                ("explicit prefetch", row["prefetch"] == "explicit"),
                ("reduced in bf16", row["reduce_dtype"] == "bf16"),
            )
            if told
        ]
    if row["bucket_views"] == "yes":
        found.append("gradients in buckets")
    if row["micro_batches"] != "1":
        waits = ", reduced after the last" if row["synced"] == "no" else ""
        found.append(f"{row['micro_batches']} micro-batches{waits}")
    return ", ".join(found)
