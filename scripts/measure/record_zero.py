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
from .record_apart import as_row, record
from .zero_case import ZeroCase
from .zero_matrix import cases

PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "deepspeed")


def _row(case: ZeroCase) -> dict[str, object]:
    from .zero_step import trace

    return as_row(case, trace(case), tables.ZERO_COLUMNS)


def _apart(case: ZeroCase) -> dict[str, object]:
    # DeepSpeed knows one process group in a process's life, so each case has a process.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        return apart.submit(_row, case).result()


def main() -> int:
    """Record every case. Returns the exit status."""
    return record(
        tables.ZERO,
        cases(),
        ZeroCase.from_row,
        _apart,
        letter="Z",
        kind="zero",
        packages=PACKAGES,
    )


if __name__ == "__main__":
    sys.exit(main())
