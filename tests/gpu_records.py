"""A whole record of a GPU check for tests, made of predictions: no GPU ever measured it."""

from datetime import date
from typing import Any

from training_memory.estimate import estimate
from training_memory.verify.moments import predicted
from training_memory.verify.plan import Plan
from training_memory.verify.record import Machine, Measurement, Record

MACHINE = Machine(
    gpu="Test GPU",
    memory_bytes=80 * 10**9,
    free_bytes=79 * 10**9,
    driver="550.54.15",
    cuda="12.4",
    torch="2.13.0",
    python="3.11.7",
    system="Linux x86_64",
    allocator="native",
)


def measurement(run: Any, *, more_bytes: int = 0) -> Measurement:
    """As if each moment had taken ``more_bytes`` more than predicted."""
    moments = predicted(estimate(run).worst.tree)
    taken = {moment: size + more_bytes for moment, size in moments.items()}
    return Measurement(
        run=run,
        moments=taken,
        reserved_bytes=max(taken.values()) + 2**21,
        outside_bytes=500 * 10**6,
        left_bytes=2**23,
        losses=(10.8, 10.5),
    )


def record(*, more_bytes: int = 0, day: date = date(2026, 1, 31), **plan: object) -> Record:
    """A record of the plan that the keywords describe, two steps of each run."""
    planned = Plan.of(steps=2, **plan)  # type: ignore[arg-type]  # whatever a test wants planned
    return Record(
        day=day,
        version="0.1.0",
        machine=MACHINE,
        plan=planned,
        measurements=tuple(measurement(run, more_bytes=more_bytes) for run in planned.runs),
    )
