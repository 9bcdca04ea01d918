"""The peak against sequence length, micro-batch or GPUs, and where it crosses the capacity."""

from __future__ import annotations

from enum import StrEnum

from .errors import InputErrors
from .estimate import peak_bytes
from .gpus import Gpu
from .largest import MOST, largest_in_steps, longest_in_steps
from .layout import ZERO_STAGES
from .records import dataclass
from .run import Run
from .slices import Work, finished

#: How many steps of equal size a curve has, and how far beyond the run's own value it goes at most.
_STEPS = 16
_FARTHEST = 64
#: The largest number of replicas that is drawn, as a power of two.
_DOUBLINGS = 10


class Along(StrEnum):
    """What a curve goes along: a field of a run, or its GPUs by doublings of the replicas."""

    SEQUENCE = "sequence"
    MICRO_BATCH = "micro_batch"
    GPUS = "gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The worst GPU's peak in bytes at each value, and the run's GPU.

    ``now`` is the run's own value. ``last`` is the largest value that fits, or of GPUs the smallest
    that is drawn; None where nothing fits or no GPU is named. ``zero`` is the ZeRO stage of a curve
    along GPUs.
    """

    along: Along
    points: tuple[tuple[int, int], ...]
    now: int
    gpu: Gpu | None
    last: int | None
    zero: int = 0

    @property
    def capacity_bytes(self) -> int | None:
        """What the run's GPU holds; None where none is named."""
        return self.gpu.memory_bytes if self.gpu else None

    def to_json(self) -> dict[str, object]:
        """The curve as plain values."""
        return {
            "along": str(self.along),
            "points": [{"value": value, "peak_bytes": peak} for value, peak in self.points],
            "now": self.now,
            "capacity_bytes": self.capacity_bytes,
            "last": self.last,
            "zero": self.zero,
        }


def curves(run: Run) -> tuple[Curve, ...]:
    """Every curve of a run that has more than one point."""
    return finished(curves_in_steps(run))


def curves_in_steps(run: Run) -> Work[tuple[Curve, ...]]:
    """:func:`curves`, which may be left off after every point."""
    found = []
    for along in (along_sequence, along_micro_batch, along_gpus):
        found.append((yield from along(run)))
    return tuple(curve for curve in found if len(curve.points) > 1)


def along_sequence(run: Run) -> Work[Curve]:
    """The peak against the tokens of a sequence."""
    unit = run.layout.token_multiple
    most = min(MOST, run.model.positions or MOST)
    last = (yield from longest_in_steps(run)) if run.gpu else None
    values = _values(run.sequence, last, unit, most)
    return (yield from _along(run, Along.SEQUENCE, run.sequence, values, last))


def along_micro_batch(run: Run) -> Work[Curve]:
    """The peak against the sequences of a micro-batch."""
    last = (yield from largest_in_steps(run)) if run.gpu else None
    values = _values(run.micro_batch, last, 1, MOST)
    return (yield from _along(run, Along.MICRO_BATCH, run.micro_batch, values, last))


def _values(now: int, last: int | None, unit: int, most: int) -> list[int]:
    """Evenly spaced values to twice what the run has or could have, with these two among them."""
    end = min(2 * max(now, last or 0), _FARTHEST * now)
    end = min(max(end, 4 * unit), most)
    step = max(1, end // unit // _STEPS)
    found = {count * unit for count in range(step, end // unit + 1, step)}
    found |= {unit, now}
    if last is not None and last <= end:
        found.add(last)
    return sorted(found)


def _along(run: Run, along: Along, now: int, values: list[int], last: int | None) -> Work[Curve]:
    points = yield from _points(run, str(along), values)
    return Curve(
        along=along,
        points=tuple(points),
        now=now,
        gpu=run.gpu,
        last=last,
    )


def _points(run: Run, field: str, values: list[int]) -> Work[list[tuple[int, int]]]:
    request = run.to_json()
    found = []
    for value in values:
        try:
            found.append((value, peak_bytes(Run.from_json({**request, field: value}))))
        except InputErrors:
            continue
        yield
    return found


def along_gpus(run: Run) -> Work[Curve]:
    """The peak against GPUs: more and more replicas that share their states.

    By the run's stage of ZeRO, or where it has none by the highest that it can have:
    replicas that share nothing need the same however many they are, which is no curve.
    """
    shared = _shared(run)
    replica = run.layout.gpus // run.layout.data
    doublings = {2**power for power in range(_DOUBLINGS + 1)} if shared.layout.zero else set()
    replicas = sorted(doublings | {run.layout.data})
    found = yield from _points(shared, "data", replicas)
    points = [(data * replica, peak) for data, peak in found]
    capacity = run.gpu.memory_bytes if run.gpu else None
    fitting = [gpus for gpus, peak in points if capacity is not None and peak <= capacity]
    return Curve(
        along=Along.GPUS,
        points=tuple(points),
        now=run.layout.gpus,
        gpu=run.gpu,
        last=min(fitting, default=None),
        zero=shared.layout.zero,
    )


def _shared(run: Run) -> Run:
    """The run with replicas that share; as it is where it is refused every way of sharing."""
    if not run.layout.zero:
        for zero in reversed(ZERO_STAGES[1:]):
            try:
                return Run.from_json({**run.to_json(), "zero": zero})
            except InputErrors:
                continue
    return run
