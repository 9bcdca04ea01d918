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
from .record_apart import as_row, record

PACKAGES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes")


def _row(case: Fsdp1Case) -> dict[str, object]:
    from .fsdp1_step import trace

    return as_row(case, trace(case), tables.FSDP1_COLUMNS)


def main() -> int:
    """Record every case. Returns the exit status."""
    return record(
        tables.FSDP1,
        cases(),
        Fsdp1Case.from_row,
        _row,
        letter="F",
        kind="fsdp1",
        packages=PACKAGES,
    )


if __name__ == "__main__":
    sys.exit(main())
