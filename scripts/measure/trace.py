"""Trace one training step: ``python -m measure.trace --model llama-7b --sequence 4096``.

Needs PyTorch and transformers, and ``PYTHONPATH=calculator:scripts``. With ``--ops FILE`` every
operation, allocation and free is written in order (see the README beside this file).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from . import case as cases
from . import fake_cuda


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    made = argparse.ArgumentParser(prog="measure.trace", description=__doc__)
    made.add_argument("--model", required=True, help="a name of the catalogue, such as llama-7b")
    made.add_argument(
        "--shape", nargs="*", default=[], metavar="FIELD=NUMBER", help="changes to its shape"
    )
    made.add_argument("--sequence", type=int, required=True)
    made.add_argument("--micro-batch", type=int, default=1)
    made.add_argument("--micro-batches", type=int, default=1)
    made.add_argument("--adapter-rank", type=int, default=_DEFAULT.adapter_rank)
    for name, allowed in cases.CHOICES.items():
        option = f"--{name.replace('_', '-')}"
        if allowed == (False, True):
            made.add_argument(option, action="store_true")
        else:
            made.add_argument(option, choices=allowed, default=getattr(_DEFAULT, name))
    made.add_argument("--ops", type=Path, metavar="FILE", help="write every operation here")
    return made


_DEFAULT = cases.Case(model="gpt2", micro_batch=1, sequence=1)


def main(arguments: list[str] | None = None) -> int:
    """Trace the step that the arguments describe and print its peaks. Returns the exit status."""
    given = parser().parse_args(arguments)
    options = vars(given)
    ops: Path | None = options.pop("ops")
    pairs = (text.partition("=") for text in options.pop("shape"))
    case = cases.Case(shape=tuple((name, int(number)) for name, _, number in pairs), **options)
    try:
        from .backend import torch
    except fake_cuda.UnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    from .oplog import OperationLog
    from .step import trace

    began = time.perf_counter()
    if ops:
        ops.parent.mkdir(parents=True, exist_ok=True)
        with ops.open("w", encoding="utf-8") as file:
            found = trace(case, log=OperationLog(file))
    else:
        found = trace(case)
    print(
        f"{case.model}: {found.parameters:,} parameters, {found.trainable:,} trained, "
        f"PyTorch {torch.__version__}"
    )
    print(f"held between steps   {found.persistent:>20,} bytes")
    print(f"after forward        {found.after_forward:>20,} bytes")
    print(f"after backward       {found.after_backward:>20,} bytes")
    for phase, peak in found.peaks.items():
        workspace = found.with_workspace[phase] - peak.bytes
        print(f"peak of {phase:<12} {peak.bytes:>20,} bytes, at {peak.operation} in")
        print(
            f"  {found.modules[phase] or 'the model'}{', run again' if peak.recomputing else ''}:"
        )
        if workspace:
            print(f"  (and {workspace:,} more with the kernels' own scratch memory)")
        for category, size in peak.by_category.items():
            print(f"  {category:<18} {size:>20,}")
    print(f"traced in {time.perf_counter() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
