"""The longest sequence and the largest micro-batch that fit, everything else as it is.

A longer sequence and a larger micro-batch never need less, so a few dozen estimates find the last
one that fits.
"""

from __future__ import annotations

from collections.abc import Callable

from .errors import InputErrors
from .estimate import peak_bytes
from .run import DEFAULTS, Run
from .slices import Work, finished

#: Beyond this many tokens in a micro-batch nothing is looked for.
MOST = 2**30


def longest_sequence(run: Run) -> int | None:
    """The most tokens a sequence can have for ``run`` to fit its GPU; None if not even the fewest.

    The learned positions of a model end it, and so does :data:`MOST`.
    """
    return finished(longest_in_steps(run))


def longest_in_steps(run: Run) -> Work[int | None]:
    """:func:`longest_sequence`, which may be left off after every estimate."""
    unit = run.layout.token_multiple
    most = min(MOST, run.model.positions or MOST)
    return _largest(_fits(run, "sequence"), unit, most)


def largest_micro_batch(run: Run) -> int | None:
    """The most sequences at a time for ``run`` to fit its GPU; None if not even one does.

    There stay as many micro-batches in a step as there are.
    """
    return finished(largest_in_steps(run))


def largest_in_steps(run: Run) -> Work[int | None]:
    """:func:`largest_micro_batch`, which may be left off after every estimate."""
    return _largest(_fits(run, "micro_batch"), 1, 2**20)


def fits(run: Run) -> bool:
    """Whether the run's GPU holds it; a run without one always fits."""
    return run.gpu is None or peak_bytes(run) <= run.gpu.memory_bytes


def _fits(run: Run, field: str) -> Callable[[int], bool]:
    assert field in DEFAULTS
    request = run.to_json()

    def found(value: int) -> bool:
        try:
            return fits(Run.from_json({**request, field: value}))
        except InputErrors:
            return False

    return found


def _largest(fit: Callable[[int], bool], unit: int, most: int) -> Work[int | None]:
    """The largest multiple of ``unit`` up to ``most`` that fits, if what is smaller fits too."""
    if unit > most or not fit(unit):
        return None
    low, high = 1, 2
    while high * unit <= most and fit(high * unit):
        low, high = high, high * 2
        yield
    high = min(high, most // unit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fit(middle * unit) else (low, middle)
        yield
    return low * unit
