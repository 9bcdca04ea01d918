"""How near the calculator comes to PyTorch: every traced step beside what is predicted for it.

The traces are data (docs/data/traces, made by scripts/measure); the predictions are asked of the
calculator whenever the tables are made.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from places import DOCS
from table import Cell, Column, Table
from training_memory.estimate import estimate
from training_memory.run import Run
from training_memory.units import gb, percent

_STEPS = DOCS / "data" / "traces" / "steps.csv"
#: What a trace calls a precision, and the recipe that it is.
RECIPES: Mapping[str, str] = {
    "fp32": "fp32-adam",
    "autocast": "autocast-adam",
    "bf16": "bf16-adam",
    "master": "mixed-adam",
    "master-fp32-grad": "mixed-adam-fp32-grad",
}
#: An optimizer of the traces as a run names it, and AdamW's kernel.
OPTIMIZERS: Mapping[str, tuple[str, str | None]] = {
    "adamw-fused": ("adamw", "fused"),
    "adamw-foreach": ("adamw", "foreach"),
    "adamw-forloop": ("adamw", "forloop"),
    "sgd-momentum": ("sgd-momentum", None),
    "adafactor": ("adafactor", None),
    "adafactor-hf": ("adafactor-hf", None),
    "muon": ("muon", None),
    "adamw-8bit": ("adamw-8bit", None),
}
_NAMES = {"huggingface": "Hugging Face", "torchtitan": "torchtitan"}
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One traced step and its prediction, in bytes."""

    row: Mapping[str, str]
    predicted: int
    traced: int

    @property
    def apart(self) -> int:
        """How far the prediction is off."""
        return abs(self.predicted - self.traced)


def run_of(row: Mapping[str, str]) -> Run:
    """The run that a row of the traces is of."""
    return Run.from_json(
        {
            "model": row["model"],
            "shape": dict(pair.split("=") for pair in row["shape"].split()),
            "sequence": row["sequence"],
            "micro_batch": row["micro_batch"],
            "micro_batches": row["micro_batches"],
            "recipe": RECIPES[row["precision"]],
            "recompute": row["recompute"],
            "implementation": row["implementation"],
            "attention": row["attention"],
            "loss": row["loss"],
            "optimizer": OPTIMIZERS[row["optimizer"]][0],
            "optimizer_kernel": OPTIMIZERS[row["optimizer"]][1],
            "clip": row["clip"] == "yes",
            "hold_logits": row["hold_logits"] == "yes",
        }
    )


@cache
def compared() -> tuple[Compared, ...]:
    """Every traced step that a run can ask for, in the traces' order."""
    with _STEPS.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["implementation"] in _NAMES]
    return tuple(
        Compared(
            row=row,
            predicted=estimate(run_of(row)).worst.peak_bytes,
            traced=int(row["peak_bytes"]),
        )
        for row in rows
    )


def _share(one: Compared) -> Cell:
    value = percent(one.apart, one.traced, _DIGITS)
    return Cell(value, f"{value} %")


def _at(ordered: list[Compared], share: float) -> Compared:
    """The step at a share of the order, counted from the nearest: 0.5 is the median."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


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
        ordered = sorted(steps, key=lambda one: one.apart / one.traced)
        worst = ordered[-1]
        rows.append(
            (
                Cell(name.strip("*"), name),
                Cell(len(steps)),
                Cell(sum(one.apart == 0 for one in steps)),
                _share(_at(ordered, 0.5)),
                _share(_at(ordered, 0.95)),
                _share(worst),
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
            Column(heading="Traced", name="traced_bytes"),
            Column(heading="Predicted", name="predicted_bytes"),
            Column(heading="Error", name="error_percent"),
        ),
        rows=tuple(
            (
                *(Cell(one.row[name]) for name in (*_WORDS, "loss")),
                Cell(one.traced, gb(one.traced, 2)),
                Cell(one.predicted, gb(one.predicted, 2)),
                _share(one),
            )
            for one in compared()
        ),
    )
