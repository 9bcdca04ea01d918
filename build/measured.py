"""Measurements that others published, each beside what the calculator says of the same run.

The rows and the runs they are of are data (docs/data/measured); the predictions are asked of the
calculator whenever the tables are made. Sizes are in bytes.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Any

import measured_litgpt
import measured_llmc
import measured_losses
import measured_torchtune
from places import DOCS
from training_memory.estimate import estimate
from training_memory.need import CONTEXT
from training_memory.run import Run

_FOLDER = DOCS / "data" / "measured"
_UNITS = {"GiB": 2**30, "MiB": 2**20, "GB": 10**9}


class Counter(StrEnum):
    """What a published figure counts."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One published figure, and its prediction where the calculator has such a run.

    ``predicted_bytes`` is of the same counter: allocated memory, or what the allocator reserves. Of
    a device's whole use it is the least, what is allocated, and ``most_bytes`` that and the largest
    CUDA context. ``why_not`` says why there is none, ``note`` what to know of the row, ``missing``
    what its source does not say and nothing else settles.
    """

    row: Mapping[str, str]
    counter: Counter
    bytes: int
    run: Run | None
    predicted_bytes: int | None
    most_bytes: int | None
    why_not: str
    note: str
    missing: str

    @property
    def id(self) -> str:
        """The row's name."""
        return self.row["row_id"]

    @property
    def is_scored(self) -> bool:
        """Whether like is compared with like."""
        return self.predicted_bytes is not None and self.counter is not Counter.DEVICE

    @property
    def apart(self) -> int:
        """Predicted less measured."""
        assert self.predicted_bytes is not None
        return self.predicted_bytes - self.bytes


@cache
def measured() -> tuple[Measured, ...]:
    """Every published figure, in the order of the file."""
    runs = tomllib.loads((_FOLDER / "runs.toml").read_text(encoding="utf-8"))
    with (_FOLDER / "rows.csv").open(newline="", encoding="utf-8") as file:
        return tuple(_read(row, runs[row["row_id"]]) for row in csv.DictReader(file))


def _read(row: Mapping[str, str], entry: Mapping[str, Any]) -> Measured:
    run = Run.from_json(entry["run"]) if "run" in entry else None
    counter = _counter(row["kind"])
    predicted = _predicted(counter, run, entry)
    return Measured(
        row=row,
        counter=counter,
        bytes=_bytes(row["measured_value"], row["unit"]),
        run=run,
        predicted_bytes=predicted,
        most_bytes=predicted + CONTEXT[1] if predicted and counter is Counter.DEVICE else None,
        why_not=entry.get("why_not", ""),
        note=entry.get("note", ""),
        missing="" if "found" in entry else row["missing_inputs"],
    )


def _predicted(counter: Counter, run: Run | None, entry: Mapping[str, Any]) -> int | None:
    if run is not None:
        found = estimate(run)
        if counter is not Counter.RESERVED:
            return found.worst.peak_bytes
        return found.need.growing_bytes if entry.get("growing") else found.need.reserved_bytes
    if "loss" in entry:
        return measured_losses.peak(**entry["loss"])
    if "litgpt" in entry:
        return measured_litgpt.peak(**entry["litgpt"])
    if "torchtune" in entry:
        return measured_torchtune.peak(entry["torchtune"])
    if "llm_c" in entry:
        return measured_llmc.allocated(**entry["llm_c"])
    return None


def _counter(kind: str) -> Counter:
    if "reserved" in kind:
        return Counter.RESERVED
    return Counter.DEVICE if "device" in kind else Counter.ALLOCATED


def _bytes(value: str, unit: str) -> int:
    """The bytes of a printed size."""
    found = re.match(r"[A-Za-z]+", unit)
    assert found, unit
    return round(Decimal(value) * _UNITS[found[0]])
