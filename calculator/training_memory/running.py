"""Moves summed up quickly: running totals of a section, worked out by Python's own C loops.

A recorded step has hundreds of moves, and its sums are wanted anew for every key that is pressed.
So what does not depend on sizes is prepared once: which number is added at each move, in all and
in each category.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import neg

from .categories import CATEGORIES
from .records import dataclass

#: A storage, the category that it leaves and the one that it comes to, by place; −1 is neither: it
#: is taken then, or released.
Move = tuple[int, int, int]
#: What each of some steps does: twice the category's place, and one more where it adds.
Codes = tuple[int, ...]


def signed(sizes: Sequence[int]) -> list[int]:
    """Sizes to be added, then the same to be taken away, then nothing."""
    return [*sizes, *map(neg, sizes), 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Moves summed up, relative to where they start: see :class:`.walk.Segment`.

    ``at`` is the move after which the peak is first reached, −1 where nothing rises.
    """

    remains: tuple[int, ...]
    peak: int
    parts: tuple[int, ...]
    largest: tuple[int, ...]
    at: int


@lru_cache(maxsize=512)
def _by_category(codes: Codes) -> Mapping[int, Sequence[int]]:
    """Which steps are of each category: the same for all layers, and for most other recordings."""
    found: dict[int, list[int]] = {}
    for step, code in enumerate(codes):
        found.setdefault(code >> 1, []).append(step)
    return found


class Running:
    """Moves prepared to be summed up; ``storages`` is how many there are in all.

    A move is one step, or two where it changes a storage's category: ``places`` are where among
    the changes each step's is, ``codes`` what it does.
    """

    __slots__ = ("_second", "codes", "places")

    def __init__(self, moves: Sequence[Move], storages: int) -> None:
        places: list[int] = []
        codes: list[int] = []
        second: list[int] = []
        for storage, source, target in moves:
            if source >= 0:
                places.append(storages + storage)
                codes.append(2 * source)
                if target >= 0:
                    second.append(len(places))
            if target >= 0:
                places.append(storage)
                codes.append(2 * target + 1)
        #: Steps that are the second of their move.
        self._second = second
        self.places = places
        self.codes = tuple(codes)

    def climb(self, changes: Sequence[int]) -> tuple[int, int]:
        """What remains and the highest point: :meth:`sum`'s totals alone."""
        totals = list(accumulate([changes[place] for place in self.places]))
        return (totals[-1], max(0, max(totals))) if totals else (0, 0)

    def left(self, changes: Sequence[int]) -> tuple[int, ...]:
        """What remains by category: :meth:`sum`'s ``remains`` alone."""
        places = self.places
        remains = [0] * len(CATEGORIES)
        for category, steps in _by_category(self.codes).items():
            remains[category] = sum([changes[places[step]] for step in steps])
        return tuple(remains)

    def sum(self, changes: Sequence[int]) -> Sum:
        """The sums for sizes as :func:`signed` gives them."""
        sizes = [changes[place] for place in self.places]
        totals = list(accumulate(sizes))
        peak = max(totals, default=0)
        at = totals.index(peak) if peak > 0 else -1
        remains, parts, largest = ([0] * len(CATEGORIES) for _ in range(3))
        for category, steps in _by_category(self.codes).items():
            values = list(accumulate([sizes[step] for step in steps]))
            remains[category] = values[-1]
            largest[category] = max(0, max(values))
            if before := bisect_right(steps, at):
                parts[category] = values[before - 1]
        return Sum(
            remains=tuple(remains),
            peak=max(peak, 0),
            parts=tuple(parts),
            largest=tuple(largest),
            at=at - bisect_right(self._second, at),
        )
