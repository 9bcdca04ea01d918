"""Steps whose library few environments have: one table, whose known rows are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from . import tables
from .versions import write_versions


class Split(Protocol):
    """A step of one of several GPUs, as a table's row names it."""

    def to_row(self) -> dict[str, str]:
        """The step as the first columns of a table."""
        ...


C = TypeVar("C", bound=Split)


def as_row(case: Split, found: Any, columns: Sequence[str]) -> dict[str, object]:
    """What was ``found`` of a step, in those columns that its table has."""
    row: dict[str, object] = {
        **{name: text for name, text in case.to_row().items() if name in columns},
        "parameters": found.parameters,
        "persistent_bytes": found.persistent,
        "after_forward_bytes": found.after_forward,
        "after_backward_bytes": found.after_backward,
    }
    for phase in ("forward", "backward", "clip", "step"):
        peak = found.peaks.get(phase)
        if peak and f"{phase}_bytes" in columns:
            row[f"{phase}_bytes"] = peak.bytes
            row[f"{phase}_operation"] = peak.operation.removeprefix("aten.")
    return row


def record(
    table: str,
    every: Sequence[C],
    read: Callable[[Mapping[str, str]], C],
    trace: Callable[[C], dict[str, object]],
    *,
    letter: str,
    kind: str,
    packages: Sequence[str],
) -> int:
    """Trace every step that the table has not (all, if told ``--fresh``). Returns the exit status.

    ``letter`` begins a row's name; ``kind`` and ``packages`` are whose versions are written down.
    """
    known: dict[C, dict[str, object]] = {}
    if (tables.FOLDER / table).exists() and "--fresh" not in sys.argv:
        known = {read(row): dict(row) for row in tables.read(table)}
    for number, case in enumerate(every, start=1):
        if case not in known:
            known[case] = trace(case)
        known[case]["step"] = f"{letter}{number:03}"
        tables.write(table, [known[one] for one in every if one in known])
        print(f"\r{number} of {len(every)}", end="", flush=True)
    print()
    write_versions([kind], packages)
    return 0
