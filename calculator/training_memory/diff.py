"""Two runs side by side: what is set differently, the totals, and where their steps part and why.

Both steps are walked abreast (:mod:`.abreast`), event by event. An event that differs is told with
its bytes on both sides and the fields that make it differ (:mod:`.causes`, :mod:`.parting`).
"""

from __future__ import annotations

from collections.abc import Iterator

from .abreast import abreast
from .categories import CATEGORIES, Category
from .causes import Causes
from .estimate import Estimate
from .implementations import Implementation
from .model import SHAPE_FIELDS
from .parting import Parting, Told
from .records import dataclass
from .run import DEFAULTS, Run
from .sharding import of_others
from .slices import Work, finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A field that is not the same in both runs, with its values in JSON.

    ``alone_bytes`` is the first run's peak with this field alone as in the second; None where that
    cannot be. ``events`` counts those that it makes differ.
    """

    field: str
    left: object
    right: object
    alone_bytes: int | None
    events: int

    def to_json(self) -> dict[str, object]:
        """The field as plain values."""
        return {
            "field": self.field,
            "left": self.left,
            "right": self.right,
            "alone_bytes": self.alone_bytes,
            "events": self.events,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two estimates beside each other, each by its fullest GPU.

    ``events`` are those that differ and ``partings`` the kinds of tensor, in the order of the
    steps; ``events_alike`` and ``alike`` count the rest. Where the steps are told in different ways
    (``comparable`` is false: the textbook's rows beside a library's tensors) nothing is put beside
    anything.
    """

    left: Estimate
    right: Estimate
    settings: tuple[Setting, ...]
    events: tuple[Parting, ...]
    events_alike: int
    partings: tuple[Parting, ...]
    alike: int
    comparable: bool

    @property
    def change_bytes(self) -> int:
        """How much higher the right run's peak is."""
        return self.right.worst.peak_bytes - self.left.worst.peak_bytes

    @property
    def totals(self) -> tuple[tuple[Category, int, int, int, int], ...]:
        """Each category that either run has: the largest it gets, and its part of the peaks."""
        left, right = self.left.worst, self.right.worst
        return tuple(
            (
                category,
                left.totals[category],
                right.totals[category],
                left.peak_parts[category],
                right.peak_parts[category],
            )
            for category in CATEGORIES
            if left.totals[category] or right.totals[category]
        )

    def to_json(self) -> dict[str, object]:
        """The difference as plain values."""
        return {
            "left": self.left.to_json(),
            "right": self.right.to_json(),
            "change_bytes": self.change_bytes,
            "settings": [setting.to_json() for setting in self.settings],
            "totals": [
                {
                    "category": str(category),
                    "left": {"largest": left, "at_peak": left_peak},
                    "right": {"largest": right, "at_peak": right_peak},
                }
                for category, left, right, left_peak, right_peak in self.totals
            ],
            "comparable": self.comparable,
            "events_alike": self.events_alike,
            "events": [event.to_json() for event in self.events],
            "alike": self.alike,
            "partings": [parting.to_json() for parting in self.partings],
        }


def diff(left: Estimate, right: Estimate, *, why: bool = True) -> Difference:
    """The two runs side by side; which of several fields does what is found out only if ``why``.

    That estimates a run or two for each of them.
    """
    return finished(diff_in_steps(left, right, why=why))


def diff_in_steps(left: Estimate, right: Estimate, *, why: bool = True) -> Work[Difference]:
    """:func:`diff`, which may be left off after every field."""
    fields = [*_differing(left.run, right.run)]
    textbook = [one.run.implementation is Implementation.PAPER for one in (left, right)]
    comparable = textbook[0] == textbook[1]
    names = [field for field, _, _ in fields]
    causes = Causes(left, right, names if why or len(names) == 1 else ())
    yield
    pairs = abreast(left.worst.plan, right.worst.plan) if comparable else []
    yield
    yield from causes.steps()
    told = Told(left, right, pairs, causes)
    yield from told.steps()
    return Difference(
        left=left,
        right=right,
        settings=tuple(
            Setting(
                field=field,
                left=before,
                right=after,
                alone_bytes=causes.alone_bytes.get(field),
                events=sum(field in names for names in told.causes.values()),
            )
            for field, before, after in fields
        ),
        events=told.events,
        events_alike=len(pairs) - len(told.events),
        partings=told.kinds,
        alike=told.alike,
        comparable=comparable,
    )


def _differing(left: Run, right: Run) -> Iterator[tuple[str, object, object]]:
    """Every field that is not the same in both, with both values."""
    before, after = left.to_json(), right.to_json()
    of_one = {*of_others(left.sharding, left.layout)} ^ {*of_others(right.sharding, right.layout)}
    for field in DEFAULTS:
        lacks = field != "gpu" and None in (before[field], after[field])
        if lacks and (left.implementation is not right.implementation or field in of_one):
            continue  # one implementation, or one way of sharding, has no such field
        if field != "shape" and before[field] != after[field]:
            yield field, before[field], after[field]
    for field in SHAPE_FIELDS:
        one, other = getattr(left.model, field), getattr(right.model, field)
        if one != other:
            yield field, one, other
