"""Moves summed up quickly: running totals of a section, worked out by Python's own C loops.

A recorded step has hundreds of moves, and its sums are wanted anew for every key that is pressed.
So what does not depend on sizes is prepared once: which number is added at each move, in all and
in each category.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import neg

from .categories import CATEGORIES
from .records import dataclass

#: A storage, the category that it leaves and the one that it comes to, by place; −1 is neither: it
#: is taken then, or released.
Move = tuple[int, int, int]


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


class Running:
    """Moves prepared to be summed up; ``storages`` is how many there are in all."""

    __slots__ = ("_by_category", "_in_all")

    def __init__(self, moves: Sequence[Move], storages: int) -> None:
        # In few passes that each do little, since every recording has dozens of these to prepare.
        self._in_all = [
            storage if source < 0 else storages + storage if target < 0 else 2 * storages
            for storage, source, target in moves
        ]
        self._by_category = {
            category: (
                [
                    storage if target == category else storages + storage
                    for storage, source, target in moves
                    if (source == category) != (target == category)
                ],
                [
                    index
                    for index, (_, source, target) in enumerate(moves)
                    if (source == category) != (target == category)
                ],
            )
            for category in {
                place for _, *places in moves if places[0] != places[1] for place in places
            }
            if category >= 0
        }

    def climb(self, changes: Sequence[int]) -> tuple[int, int]:
        """What remains and the highest point: :meth:`sum`'s totals alone."""
        totals = list(accumulate(map(changes.__getitem__, self._in_all)))
        return (totals[-1], max(0, max(totals))) if totals else (0, 0)

    def left(self, changes: Sequence[int]) -> tuple[int, ...]:
        """What remains by category: :meth:`sum`'s ``remains`` alone."""
        remains = [0] * len(CATEGORIES)
        for category, (places, _) in self._by_category.items():
            remains[category] = sum(map(changes.__getitem__, places))
        return tuple(remains)

    def sum(self, changes: Sequence[int]) -> Sum:
        """The sums for sizes as :func:`signed` gives them."""
        change = changes.__getitem__
        totals = list(accumulate(map(change, self._in_all)))
        peak = max(totals, default=0)
        at = totals.index(peak) if peak > 0 else -1
        remains, parts, largest = ([0] * len(CATEGORIES) for _ in range(3))
        for category, (places, indexes) in self._by_category.items():
            values = list(accumulate(map(change, places)))
            remains[category] = values[-1]
            largest[category] = max(0, max(values))
            if before := bisect_right(indexes, at):
                parts[category] = values[before - 1]
        return Sum(
            remains=tuple(remains),
            peak=max(peak, 0),
            parts=tuple(parts),
            largest=tuple(largest),
            at=at,
        )
