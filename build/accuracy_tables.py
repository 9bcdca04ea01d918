"""How near the calculator comes to PyTorch: every traced step beside what is predicted for it.

The traces are data (docs/data/traces, made by scripts/measure); the predictions are asked of the
calculator whenever the tables are made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from compared import END, Compared, Row, at, by_error, end, error, exact, request_of, rows_of
from table import Cell, Column, Table
from training_memory.estimate import estimate
from training_memory.run import Run

_NAMES = {"huggingface": "Hugging Face", "torchtitan": "torchtitan"}


def run_of(row: Row) -> Run:
    """The run that a row of the traces is of."""
    held = row["hold_logits"] == "yes"
    return Run.from_json({**request_of(row), "loss": row["loss"], "hold_logits": held})


@cache
def compared() -> tuple[Compared, ...]:
    """Every traced step that a run can ask for, in the traces' order."""
    return tuple(
        Compared(
            row=row,
            predicted=estimate(run_of(row)).worst.peak_bytes,
            traced=int(row["peak_bytes"]),
        )
        for row in rows_of("steps.csv")
        if row["implementation"] in _NAMES
    )


def _which(worst: Compared) -> Cell:
    if worst.apart == 0:
        return Cell("", "none")
    return Cell(worst.row["step"], f"{worst.row['step']}, {worst.row['model']}")


def summary() -> Table:
    """By implementation: how many steps, how many exact, and the errors of the others."""
    choices: tuple[tuple[str, Callable[[Compared], bool]], ...] = (
        *(
            (name, lambda one, key=key: one.row["implementation"] == key)
            for key, name in _NAMES.items()
        ),
        ("**All**", lambda one: True),
    )
    rows = []
    for name, belongs in choices:
        steps = [one for one in compared() if belongs(one)]
        ordered = by_error(steps)
        worst = ordered[-1]
        rows.append(
            (
                Cell(name.strip("*"), name),
                Cell(len(steps)),
                exact(steps),
                error(at(ordered, 0.5)),
                error(at(ordered, 0.95)),
                error(worst),
                _which(worst),
            )
        )
    return Table(
        columns=(
            Column(heading="Implementation", name="implementation", right=False),
            Column(heading="Steps", name="steps"),
            Column(heading="Exact to the byte", name="exact"),
            Column(heading="Median error", name="median_error_percent"),
            Column(heading="95th percentile", name="p95_error_percent"),
            Column(heading="Worst", name="worst_error_percent"),
            Column(heading="Which", name="worst_step", right=False),
        ),
        rows=tuple(rows),
    )


_WORDS = ("step", "implementation", "model", "precision", "attention", "recompute", "optimizer")


def steps() -> Table:
    """Every step: what it is, its traced and its predicted peak, and the error."""
    return Table(
        columns=(
            *(
                Column(heading=name.capitalize(), name=name, right=False)
                for name in (*_WORDS, "loss")
            ),
            *END,
        ),
        rows=tuple(
            (
                *(Cell(one.row[name]) for name in (*_WORDS, "loss")),
                *end(one),
            )
            for one in compared()
        ),
    )
