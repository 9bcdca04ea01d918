"""The page "On a real GPU": contributed records of ``training-memory verify``, checked and shown.

What a record says was measured is taken from it; what is predicted comes from the calculator as it
is now, so that the errors on the page are today's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from content import ContentError
from places import DOCS
from table import Cell, Column, Table
from training_memory.units import show_bytes
from training_memory.verify.differences import known
from training_memory.verify.moments import Moment
from training_memory.verify.plan import Plan
from training_memory.verify.reading import RecordError, read_record
from training_memory.verify.record import Machine, Measurement, Record
from training_memory.verify.report import error

RUNS = DOCS / "data" / "gpu_runs"

#: What the page says while nobody has contributed a run.
NONE_YET = "pending"

_UNSAFE = re.compile(r"[^\w .,:()+-]|_", re.ASCII)


def gpu_runs(folder: Path = RUNS) -> str:
    """The contributed runs as Markdown, newest first, or :data:`NONE_YET`.

    A table of peaks, then each record's moments to unfold. Raises :class:`content.ContentError`,
    which stops the build, naming each file that is no record and what is wrong with it.
    """
    records = _records(folder)
    if not records:
        return NONE_YET
    parts = [_peaks(records).markdown(), *(_details(record) for record in records)]
    return "\n".join(parts).rstrip()


def gpu_differences() -> str:
    """What sets the default run apart from its prediction, as a Markdown table."""
    (run,) = Plan.of(recompute=["none"]).runs
    rows = tuple(
        (
            Cell(one.bytes, f"{'+' if one.bytes > 0 else '−'}{show_bytes(abs(one.bytes))}"),
            Cell(one.what),
        )
        for one in known(run)
    )
    columns = (
        Column(heading="Measured beyond predicted", name="bytes"),
        Column(heading="When, and what it is", name="what", right=False),
    )
    return Table(columns=columns, rows=rows).markdown().rstrip()


def _records(folder: Path) -> list[Record]:
    found: list[Record] = []
    problems = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(read_record(json.loads(path.read_text(encoding="utf-8"))))
        except RecordError as wrong:
            problems += [f"{path.name}: {problem}" for problem in wrong.problems]
        except (UnicodeDecodeError, json.JSONDecodeError) as wrong:
            problems.append(f"{path.name}: this is not JSON: {wrong}")
    if problems:
        raise ContentError(
            "docs/data/gpu_runs: a contributed run cannot be shown.\n" + "\n".join(problems)
        )
    return sorted(found, key=lambda record: record.day, reverse=True)


def _peaks(records: list[Record]) -> Table:
    columns = (
        Column(heading="GPU", name="gpu", right=False),
        Column(heading="Run", name="run", right=False),
        Column(heading="Recomputed", name="recompute", right=False),
        *_COMPARED,
    )
    rows = tuple(
        (
            Cell(_plain(record.machine.gpu)),
            Cell(_run(one)),
            Cell(str(one.run.recompute)),
            *_compared(one.predicted_bytes, one.allocated_bytes),
        )
        for record in records
        for one in record.measurements
    )
    return Table(columns=columns, rows=rows)


_COMPARED = (
    Column(heading="Predicted", name="predicted_bytes"),
    Column(heading="Allocated", name="allocated_bytes"),
    Column(heading="Error", name="error"),
)


def _compared(predicted: int, allocated: int) -> tuple[Cell, Cell, Cell]:
    return _size(predicted), _size(allocated), Cell(error(predicted, allocated))


def _run(one: Measurement) -> str:
    run, model = one.run, one.run.model
    return f"{model.name}, {model.layers} layers, {run.micro_batch:,} × {run.sequence:,} tokens"


def _details(record: Record) -> str:
    """One record under a summary that unfolds; the blank lines let Markdown in."""
    named = f"{_plain(record.machine.gpu)}, {record.day.isoformat()}"
    lines = [
        '<details class="gpu-run" markdown="1">',
        f"<summary>{named}: moment by moment</summary>",
        "",
        ", ".join(_about(record.machine)) + ".",
        "",
    ]
    for one in record.measurements:
        lines += [f"{_run(one)}, recomputed: {one.run.recompute}.", "", _moments(one).markdown()]
        lines += [", ".join(_apart(one)) + ".", ""]
    return "\n".join([*lines, "</details>", ""])


def _moments(one: Measurement) -> Table:
    says = one.predicted_moments
    rows = tuple(
        (Cell(moment.heading), *_compared(says[moment], one.moments[moment])) for moment in Moment
    )
    first = Column(heading="Moment", name="moment", right=False)
    return Table(columns=(first, *_COMPARED), rows=rows)


def _about(machine: Machine) -> Iterator[str]:
    yield f"PyTorch {_plain(machine.torch)}"
    yield f"CUDA {_plain(machine.cuda)}"
    yield f"driver {_plain(machine.driver)}"
    yield _plain(machine.system)
    yield f"allocator {_plain(machine.allocator)}"


def _apart(one: Measurement) -> Iterator[str]:
    """What is measured and not predicted."""
    yield f"Reserved at most {show_bytes(one.reserved_bytes, digits=2)}"
    yield f"outside the allocator {show_bytes(one.outside_bytes)}"
    yield f"still allocated at the end {show_bytes(one.left_bytes)}"


def _size(size: int) -> Cell:
    return Cell(size, show_bytes(size, digits=2))


def _plain(text: str) -> str:
    """A contributor's words as plain text: nothing in them is Markdown or HTML."""
    return _UNSAFE.sub(lambda match: f"&#{ord(match[0])};", text)
