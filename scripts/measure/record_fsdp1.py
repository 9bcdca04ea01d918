"""Trace steps under PyTorch's first FSDP and write them down: ``python -m measure.record_fsdp1``.

Needs ``accelerate`` beside what the rest of the package needs, and
``PYTHONPATH=calculator:scripts``. Rows that the table has already are kept; ``--fresh`` traces all
of them again.
"""

from __future__ import annotations

import sys

from . import tables
from .fsdp1_case import Fsdp1Case
from .fsdp1_matrix import cases
from .versions import write_versions

PACKAGES = ("torch", "transformers", "accelerate")


def _row(case: Fsdp1Case) -> dict[str, object]:
    from .fsdp1_step import trace

    found = trace(case)
    row: dict[str, object] = {
        **{name: text for name, text in case.to_row().items() if name in tables.FSDP1_COLUMNS},
        "parameters": found.parameters,
        "persistent_bytes": found.persistent,
        "after_forward_bytes": found.after_forward,
        "after_backward_bytes": found.after_backward,
    }
    for phase in ("forward", "backward", "clip", "step"):
        if peak := found.peaks.get(phase):
            row[f"{phase}_bytes"] = peak.bytes
            row[f"{phase}_operation"] = peak.operation.removeprefix("aten.")
    return row


def main() -> int:
    """Record every case. Returns the exit status."""
    path = tables.FOLDER / tables.FSDP1
    known: dict[Fsdp1Case, dict[str, object]] = {}
    if path.exists() and "--fresh" not in sys.argv:
        known = {Fsdp1Case.from_row(row): dict(row) for row in tables.read(tables.FSDP1)}
    every = cases()
    for number, case in enumerate(every, start=1):
        if case not in known:
            known[case] = _row(case)
        known[case]["step"] = f"F{number:03}"
        done = [known[one] for one in every if one in known]
        tables.write(tables.FSDP1, done)
        print(f"\r{number} of {len(every)}", end="", flush=True)
    print()
    write_versions(["fsdp1"], PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
