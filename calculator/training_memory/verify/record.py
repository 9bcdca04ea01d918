"""The record of a check: what ran where, and what was measured. :mod:`.reading` reads it back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from ..estimate import estimate
from ..records import dataclass, fields
from ..run import Run
from .moments import Moment, predicted
from .plan import Plan

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a check ran, as far as it bears on memory; nothing in it says whose machine it was.

    ``memory_bytes`` is what the driver reports as the GPU's total, ``free_bytes`` what was free
    when the check began; ``allocator`` PyTorch's allocator with its settings.
    """

    gpu: str
    memory_bytes: int
    free_bytes: int
    driver: str
    cuda: str
    torch: str
    python: str
    system: str
    allocator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one run of a check took, in bytes: the most over its steps.

    ``moments`` are allocated memory; ``reserved_bytes`` what PyTorch's allocator took from the
    driver at most; ``outside_bytes`` what was used outside the allocator as the run ended (the CUDA
    context, other programs); ``left_bytes`` what was still allocated after everything of the run
    had gone (workspaces of the libraries). ``losses`` are a number a step.
    """

    run: Run
    moments: Mapping[Moment, int]
    reserved_bytes: int
    outside_bytes: int
    left_bytes: int
    losses: tuple[float, ...]

    @property
    def allocated_bytes(self) -> int:
        """The highest of all: ``torch.cuda.max_memory_allocated`` over a whole step."""
        return max(self.moments.values())

    @property
    def predicted_moments(self) -> dict[Moment, int]:
        """What the calculator says of the same moments."""
        return predicted(estimate(self.run).worst.tree)

    @property
    def predicted_bytes(self) -> int:
        """What the calculator says of the peak."""
        return estimate(self.run).worst.peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One check: the day (UTC), the calculator's version, the machine, and each run."""

    day: date
    version: str
    machine: Machine
    plan: Plan
    measurements: tuple[Measurement, ...]

    def to_json(self) -> dict[str, object]:
        """The record as plain values.

        Predictions are there for whoever reads the file. They are not read back: they are the
        calculator's to make, and it may have learned since.
        """
        return {
            "format": FORMAT,
            "day": self.day.isoformat(),
            "training_memory": self.version,
            "machine": {item.name: getattr(self.machine, item.name) for item in fields(Machine)},
            **plan_json(self.plan),
            "measurements": [_measured_json(one) for one in self.measurements],
        }


def plan_json(plan: Plan) -> dict[str, object]:
    """What a check runs, as plain values: the run without its recomputation, and the steps."""
    run = plan.run.to_json()
    del run["recompute"]
    return {"run": run, "steps": plan.steps}


def predicted_json(run: Run) -> dict[str, object]:
    """What the calculator says of one run, as plain values."""
    worst = estimate(run).worst
    moments = predicted(worst.tree)
    return {
        "peak_bytes": worst.peak_bytes,
        "moments": {str(moment): size for moment, size in moments.items()},
    }


def _measured_json(one: Measurement) -> dict[str, object]:
    return {
        "recompute": str(one.run.recompute),
        "predicted": predicted_json(one.run),
        "measured": {
            "max_memory_allocated": one.allocated_bytes,
            "max_memory_reserved": one.reserved_bytes,
            "moments": {str(moment): size for moment, size in one.moments.items()},
            "outside_allocator": one.outside_bytes,
            "left_allocated": one.left_bytes,
        },
        "losses": list(one.losses),
    }
