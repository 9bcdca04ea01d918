"""Moves summed up quickly: running totals of a section, worked out by Python's own C loops.

A move takes a storage for a category, or releases it from one; what goes from one category to
another does both in a row. A recorded step has hundreds of moves, and its sums are wanted anew for
every key that is pressed, so they are recorded as what does not depend on sizes: which number is
added at each move, and in which category.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter, neg

from .categories import CATEGORIES
from .records import dataclass

_ALL = len(CATEGORIES)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: What each of some moves does: twice the category's place, and one more where it adds.
Codes = tuple[int, ...]


def signed(sizes: Sequence[int]) -> list[int]:
    """Changes: a storage's size at its number, and what is taken away at the number's complement.

    That is a place from the end: −1 is the complement of 0.
    """
    return [*sizes, *map(neg, reversed(sizes))]


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
    """Which moves are of each category: the same for all layers, and for most other recordings."""
    found: dict[int, list[int]] = {}
    for at, code in enumerate(codes):
        found.setdefault(code >> 1, []).append(at)
    return {category: (moves, pick(moves)) for category, moves in found.items()}


class Running:
    """Moves prepared to be summed up.

    ``places`` are where among the changes each move's size is, ``codes`` what it does.
    """

    __slots__ = ("_by_category", "codes", "places", "sizes")

    def __init__(self, places: Sequence[int], codes: Codes) -> None:
        self._by_category: Mapping[int, tuple[Sequence[int], Pick]] | None = None
        self.places = places
        self.codes = codes
        #: Each move's size, of the changes.
        self.sizes = pick(places)

    def passes_on(self, at: int) -> bool:
        """Whether a move is half of a storage's way from one category to another."""
        places = self.places
        other = at + 1 if places[at] < 0 else at - 1
        return 0 <= other < len(places) and places[other] == ~places[at]

    def ends(self) -> Iterator[int]:
        """The storages that are taken, and the complements of those that are released."""
        for at, place in enumerate(self.places):
            if not self.passes_on(at):
                yield place

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
        for category, (moves, of_category) in self._by_category.items():
            values = [*accumulate(of_category(sizes), initial=0)]
            remains[category] = values[-1]
            largest[category] = max(values)
            parts[category] = values[bisect_right(moves, at)]
        return Sum(
            remains=tuple(remains),
            peak=peak,
            parts=tuple(parts),
            largest=tuple(largest),
            at=at,
        )
