"""What a compiled layer keeps, ours against what PyTorch's partitioner decides.

The traces are data (docs/data/traces/compiled.csv, made by scripts/measure/compiled.py).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from places import DOCS
from table import Cell, Column, Table
from training_memory import catalog
from training_memory.kept import KeptRow, kept_rows
from training_memory.recording import Recording, record
from training_memory.structure import structure_of, values_of
from training_memory.units import show_bytes

_FILE = DOCS / "data" / "traces" / "compiled.csv"
_LAYERS = 3
#: The case that the table shows the bytes of: a layer of Llama 3 8B.
_SHOWN = "hidden=4096"
_RECOMPUTED = {
    "none": "Nothing",
    "matmuls": "All but every second product and attention",
    "full": "All",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A traced layer: what the partitioner keeps, and the calculator, compiled and not."""

    row: Mapping[str, str]
    traced: Counter[tuple[str, str, int]]
    ours: Counter[tuple[str, str, int]]
    traced_bytes: int
    our_bytes: int
    plain_bytes: int


@cache
def layers() -> tuple[Layer, ...]:
    """Every traced layer, in the order of the file."""
    with _FILE.open(newline="", encoding="utf-8") as file:
        found = groupby(csv.DictReader(file), key=lambda row: row["case"])
        return tuple(_layers([list(rows) for _, rows in found]))


def _layers(cases: list[list[dict[str, str]]]) -> Iterator[Layer]:
    for rows in cases:
        if rows[0]["what"] != "layer":
            continue
        ours = _kept(rows[0], "layers")
        yield Layer(
            row=rows[0],
            traced=Counter((row["kind"], row["dtype"], int(row["bytes"])) for row in rows),
            ours=Counter((str(one.kind), one.dtype, one.bytes) for one in ours),
            traced_bytes=sum(int(row["bytes"]) for row in rows),
            our_bytes=sum(one.bytes for one in ours),
            plain_bytes=sum(one.bytes for one in _kept(rows[0], "none")),
        )


def _kept(row: Mapping[str, str], compiled: str) -> tuple[KeptRow, ...]:
    return kept_rows(*recorded(row, compiled))


def recorded(row: Mapping[str, str], compiled: str) -> tuple[Recording, Mapping[str, int]]:
    """A traced case as the calculator records it with so much compiled, and its numbers."""
    shape = dict(pair.split("=") for pair in row["shape"].split())
    model = catalog.with_shape(catalog.get("llama-3-8b"), shape)
    sequence, micro_batch = int(row["sequence"]), int(row["micro_batch"])
    structure = structure_of(
        model,
        sequence=sequence,
        micro_batch=micro_batch,
        implementation="torchtitan",
        precision=row["precision"],
        recompute=row["recompute"] or "none",
        norm=row["norm"] or None,
        compiled=compiled,
    )
    values = values_of(model, sequence=sequence, micro_batch=micro_batch)
    return record(structure, _LAYERS), values


def summary() -> Table:
    """By precision and recomputation: layers, how many are equal, and what one layer keeps."""
    keys = dict.fromkeys((one.row["precision"], one.row["recompute"]) for one in layers())
    rows = []
    for precision, recompute in keys:
        some = [
            one
            for one in layers()
            if (one.row["precision"], one.row["recompute"]) == (precision, recompute)
        ]
        large = [one for one in some if _SHOWN in one.row["shape"]]
        rows.append(
            (
                Cell(precision),
                Cell(_RECOMPUTED[recompute]),
                Cell(len(some)),
                Cell(sum(one.traced == one.ours for one in some)),
                # Torchtitan's own norm is one kernel; compiled, either keeps the same.
                _bytes(large[0].plain_bytes),
                _bytes(large[0].traced_bytes),
            )
        )
    return Table(
        columns=(
            Column(heading="Precision", name="precision", right=False),
            Column(heading="Recomputed", name="recomputed", right=False),
            Column(heading="Layers", name="layers"),
            Column(heading="Equal to the byte", name="equal_layers"),
            Column(heading="A layer of Llama 3 8B keeps", name="plain_bytes"),
            Column(heading="Compiled", name="compiled_bytes"),
        ),
        rows=tuple(rows),
    )


def _bytes(value: int) -> Cell:
    return Cell(value, show_bytes(value))
