"""Whole steps against PyTorch itself, traced on fake tensors by scripts/measure."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sweeps import sweep
from traced import RECIPES, asked
from training_memory.estimate import estimate
from training_memory.run import Run

TRACES = Path(__file__).parents[2] / "docs" / "data" / "traces"
BAR = 0.005


def _rows() -> list[dict[str, str]]:
    with (TRACES / "steps.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["implementation"] != "paper"]


ROWS = _rows()


def test_the_rows_are_many_and_of_many_kinds():
    assert len(ROWS) >= 100
    assert {row["precision"] for row in ROWS} == set(RECIPES)
    assert {row["recompute"] for row in ROWS} == {"none", "selective", "full", "matmuls"}
    assert {row["attention"] for row in ROWS} == {"eager", "flash"}
    assert len({row["model"] for row in ROWS}) >= 6


@pytest.mark.parametrize("row", sweep(ROWS), ids=lambda row: row["step"])
def test_the_peak_is_pytorchs(row):
    predicted = estimate(Run.from_json(asked(row))).worst.peak_bytes
    traced = int(row["peak_bytes"])
    assert abs(predicted / traced - 1) <= BAR, f"{predicted / traced - 1:+.4%}"
