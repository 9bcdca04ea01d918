"""Moves summed up quickly: running totals of a section, worked out by Python's own C loops.

A recorded step has hundreds of moves, and its sums are wanted anew for every key that is pressed.
So what does not depend on sizes is prepared once: which number is added at each move, in all and
in each category.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter, neg

from .categories import CATEGORIES
from .records import dataclass

_ALL = len(CATEGORIES)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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


#: Takes the values at some places, by a loop of Python's own.
Pick = Callable[["Sequence[Any]"], "Sequence[Any]"]


def pick(places: Sequence[int]) -> Pick:
    """Takes what is at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[place] for place in places]


@lru_cache(maxsize=512)
def _by_category(codes: Codes) -> Mapping[int, tuple[Sequence[int], Pick]]:
    """Which steps are of each category: the same for all layers, and for most other recordings."""
    found: dict[int, list[int]] = {}
    for step, code in enumerate(codes):
        found.setdefault(code >> 1, []).append(step)
    return {category: (steps, pick(steps)) for category, steps in found.items()}


class Running:
    """Moves prepared to be summed up; ``storages`` is how many there are in all.

    A move is one step, or two where it changes a storage's category: ``places`` are where among
    the changes each step's is, ``codes`` what it does.
    """

    __slots__ = ("_by_category", "_second", "codes", "places", "sizes")

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
        self._by_category: Mapping[int, tuple[Sequence[int], Pick]] | None = None
        #: Steps that are the second of their move.
        self._second = second
        self.places = places
        self.codes = tuple(codes)
        #: Each step's size, of the changes.
        self.sizes = pick(places)

    @classmethod
    def of_steps(cls, places: Sequence[int], codes: Sequence[int]) -> Running:
        """Steps that are there already, each of which is a move."""
        found = cls((), 0)
        found.places = list(places)
        found.codes = tuple(codes)
        found.sizes = pick(places)
        return found

    def steps(self, moves: slice) -> slice:
        """The steps of some moves in a row."""
        second = self._second
        if not second:
            return moves
        # A second step's move comes as much earlier as there are second steps up to it.
        of = [step - before - 1 for before, step in enumerate(second)]
        start, stop = (at + bisect_left(of, at) for at in (moves.start, moves.stop))
        return slice(start, stop)

    def move(self, step: int) -> int:
        """The move that a step is of."""
        return step - bisect_right(self._second, step)

    def climb(self, changes: Sequence[int]) -> tuple[int, int]:
        """What remains and the highest point: :meth:`sum`'s totals alone."""
        totals = list(accumulate(self.sizes(changes)))
        return (totals[-1], max(0, max(totals))) if totals else (0, 0)

    def sum(self, changes: Sequence[int]) -> Sum:
        """The sums for sizes as :func:`signed` gives them."""
        sizes = self.sizes(changes)
        totals = [*accumulate(sizes, initial=0)]
        peak = max(totals)
        at = totals.index(peak) - 1
        remains, parts, largest = [0] * _ALL, [0] * _ALL, [0] * _ALL
        if self._by_category is None:
            self._by_category = _by_category(self.codes)
        for category, (steps, of_category) in self._by_category.items():
            values = [*accumulate(of_category(sizes), initial=0)]
            remains[category] = values[-1]
            largest[category] = max(values)
            parts[category] = values[bisect_right(steps, at)]
        return Sum(
            remains=tuple(remains),
            peak=peak,
            parts=tuple(parts),
            largest=tuple(largest),
            at=self.move(at),
        )
