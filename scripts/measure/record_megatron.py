"""Trace Megatron's steps and write them down: ``python -m measure.record_megatron``.

Needs ``megatron-core`` beside what the rest of the package needs, and
``PYTHONPATH=calculator:scripts``. A table of its own, since few environments have it.
"""

from __future__ import annotations

import sys

from . import tables
from .megatron_case import MegatronCase, cases
from .versions import write_versions

PACKAGES = ("torch", "megatron-core")


def _row(number: int, case: MegatronCase) -> dict[str, object]:
    from .megatron import trace

    found = trace(case)
    row: dict[str, object] = {
        **case.to_row(),
        "step": f"M{number:03}",
        "parameters": found.parameters,
        "persistent_bytes": sum(found.persistent.values()),
    }
    for phase in ("forward", "backward"):
        peak = found.peaks[phase]
        row |= {
            f"{phase}_bytes": peak.bytes,
            f"{phase}_operation": peak.operation.removeprefix("aten."),
            f"{phase}_module": found.modules[phase],
        }
    return row


def main() -> int:
    """Record every case. Returns the exit status."""
    rows = []
    every = list(cases())
    for number, case in enumerate(every, start=1):
        rows.append(_row(number, case))
        print(f"\r{number} of {len(every)}", end="", flush=True)
    print()
    tables.write(tables.MEGATRON, rows)
    write_versions(["megatron"], PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
