"""Trace steps under DeepSpeed and write them down: ``python -m measure.record_zero``.

Needs ``deepspeed`` (installed with ``DS_BUILD_OPS=0``) beside what the rest of the package needs,
and ``PYTHONPATH=calculator:scripts``. A table of its own, since few environments have it. Rows that
the table has already are kept; ``--fresh`` traces all of them again.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from . import tables
from .versions import write_versions
from .zero_case import ZeroCase
from .zero_matrix import cases

PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "deepspeed")


def _row(case: ZeroCase) -> dict[str, object]:
    from .zero_step import trace

    found = trace(case)
    row: dict[str, object] = {
        **{name: text for name, text in case.to_row().items() if name in tables.ZERO_COLUMNS},
        "parameters": found.parameters,
        "persistent_bytes": found.persistent,
        "after_forward_bytes": found.after_forward,
        "after_backward_bytes": found.after_backward,
    }
    for phase in ("forward", "backward", "step"):
        if peak := found.peaks.get(phase):
            row[f"{phase}_bytes"] = peak.bytes
            row[f"{phase}_operation"] = peak.operation.removeprefix("aten.")
    return row


def main() -> int:
    """Record every case. Returns the exit status."""
    path = tables.FOLDER / tables.ZERO
    known: dict[ZeroCase, dict[str, object]] = {}
    if path.exists() and "--fresh" not in sys.argv:
        known = {ZeroCase.from_row(row): dict(row) for row in tables.read(tables.ZERO)}
    every = cases()
    for number, case in enumerate(every, start=1):
        if case not in known:
            # DeepSpeed knows one process group in a process's life, so each case has a process.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
                known[case] = apart.submit(_row, case).result()
        known[case]["step"] = f"Z{number:03}"
        done = [known[one] for one in every if one in known]
        tables.write(tables.ZERO, done)
        print(f"\r{number} of {len(every)}", end="", flush=True)
    print()
    write_versions(["zero"], PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
