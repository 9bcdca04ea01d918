"""Where the stacked edges of a stretch of events bend, prepared once for whatever sizes come.

A picture of a step stacks the categories: edge ``k`` has the bytes of the categories up to ``k``
below it. An event moves its category's edge and those above it. Events in a row that move the same
edges the same way make one straight line, so only the last of them is a bend.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, compress, groupby
from operator import itemgetter, mul

from .events import Event, Phase
from .records import dataclass

#: A place among the changes, the category it is of by its place, and whether it adds.
Step = tuple[int, int, bool]

#: In these an event has a stretch of the picture to itself, and happens in the middle of it:
#: gradients are held while the optimizer works. In the others memory is drawn as a slope.
_STAIRS = frozenset({Phase.LOSS, Phase.OPTIMIZER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What the edges from ``first`` to before ``end`` do in a stretch.

    ``offsets`` are where, in events from its start, ``values`` the bytes relative to its start, and
    ``total`` what it leaves behind.
    """

    first: int
    end: int
    offsets: Sequence[float]
    values: Sequence[int]
    total: int


class Bending:
    """The bends of one stretch of events, all of one phase. ``count`` is how many events."""

    __slots__ = ("_columns", "count", "phase")

    def __init__(self, phase: Phase, steps: Sequence[Step]) -> None:
        self.phase = phase
        self.count = len(steps)
        runs = [
            (category, len(list(run)))
            for (category, _), run in groupby(steps, key=itemgetter(1, 2))
        ]
        lengths = [length for _, length in runs]
        ends = [0, *accumulate(lengths)]
        stairs = phase in _STAIRS
        categories = sorted({category for category, _ in runs})
        self._columns: list[
            tuple[int, int | None, Sequence[float], Sequence[int], Sequence[int]]
        ] = []
        for category, end in zip(categories, [*categories[1:], None], strict=False):
            moves = [own <= category for own, _ in runs]
            #: Of the column's own events, how many come before each run and after the last.
            before = [0, *accumulate(map(mul, lengths, moves))]
            moved = list(compress(range(len(runs)), moves))
            offsets: Sequence[float]
            if stairs:
                offsets = [(ends[at] + ends[at + 1]) / 2 for at in moved for _ in range(2)]
                corners = [at + after for at in moved for after in range(2)]
            else:
                corners = sorted({*moved, *[at + 1 for at in moved]})
                offsets = [ends[at] for at in corners]
            self._columns.append(
                (
                    category,
                    end,
                    offsets,
                    [place for place, own, _ in steps if own <= category],
                    [before[at] for at in corners],
                )
            )

    def columns(self, changes: Sequence[int], edges: int) -> list[Column]:
        """What each of so many edges does for the sizes; an edge that stays has no column."""
        found = []
        for first, end, offsets, places, bends in self._columns:
            sums = [0, *accumulate([changes[place] for place in places])]
            found.append(
                Column(
                    first=first,
                    end=edges if end is None else end,
                    offsets=offsets,
                    values=[sums[bend] for bend in bends],
                    total=sums[-1],
                )
            )
        return found


def bends(events: Sequence[Event]) -> tuple[Bending, Sequence[int]]:
    """Events of one phase as a stretch, and their sizes."""
    steps = [(at, event.category.place, event.bytes > 0) for at, event in enumerate(events)]
    return Bending(events[0].phase, steps), [event.bytes for event in events]
