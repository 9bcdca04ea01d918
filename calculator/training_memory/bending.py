"""Where the stacked edges of a stretch of events bend, prepared once for whatever sizes come.

A picture of a step stacks the categories: edge ``k`` has the bytes of the categories up to ``k``
below it. An event moves its category's edge and those above it. Events in a row that move the same
edges the same way make one straight line, so only the last of them is a bend. Where events stand
nearer to each other than can be told apart, of those together only the lowest and the highest are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from math import ceil
from operator import mul

from .events import Event, Phase
from .records import dataclass
from .running import Codes, Pick, pick

#: In these an event has a stretch of the picture to itself, and happens in the middle of it:
#: gradients are held while the optimizer works. In the others memory is drawn as a slope.
_STAIRS = frozenset({Phase.LOSS, Phase.OPTIMIZER})
#: So few events that cannot be told apart are drawn all the same.
_FEW = 3


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bends:
    """A column without sizes: takes its steps, and of sums what comes before each bend."""

    first: int
    end: int | None
    offsets: Sequence[float]
    steps: Pick
    before: Pick


@lru_cache(maxsize=512)
def _categories(codes: Codes) -> tuple[int, ...]:
    """The places of the categories that events are of, from the lowest up."""
    return tuple(sorted({code >> 1 for code in codes}))


@lru_cache(maxsize=512)
def _moves(codes: Codes) -> tuple[Sequence[int], ...]:
    """For each of those but the last, 1 at the events that move its edge and 0 at the others."""
    ends = [2 * category + 2 for category in _categories(codes)]
    return tuple([[*map(end.__gt__, codes)] for end in ends[:-1]])


@lru_cache(maxsize=512)
def _bends(codes: Codes, stairs: bool) -> tuple[_Bends, ...]:
    """Where edges bend: the same for all layers, and for most other recordings."""
    runs = [(code >> 1, len(list(run))) for code, run in groupby(codes)]
    lengths = [length for _, length in runs]
    ends = [0, *accumulate(lengths)]
    categories = _categories(codes)
    found = []
    for category, end in zip(categories, [*categories[1:], None], strict=False):
        moves = [own <= category for own, _ in runs]
        # Of the column's own steps, how many come before each run and after the last.
        before = [0, *accumulate(map(mul, lengths, moves))]
        moved = [at for at, moves_it in enumerate(moves) if moves_it]
        offsets: Sequence[float]
        if stairs:
            offsets = [(ends[at] + ends[at + 1]) / 2 for at in moved for _ in range(2)]
            corners = [at + after for at in moved for after in range(2)]
        else:
            corners = sorted({*moved, *[at + 1 for at in moved]})
            offsets = [ends[at] for at in corners]
        found.append(
            _Bends(
                first=category,
                end=end,
                offsets=offsets,
                steps=pick([step for step, code in enumerate(codes) if code >> 1 <= category]),
                before=pick([before[at] for at in corners]),
            )
        )
    return tuple(found)


class Bending:
    """The bends of one stretch of events, all of one phase. ``count`` is how many events.

    ``sizes`` takes each event's of the changes, ``codes`` are what it does.
    """

    __slots__ = ("codes", "count", "phase", "sizes")

    def __init__(self, phase: Phase, codes: Codes, sizes: Pick) -> None:
        self.phase = phase
        self.count = len(codes)
        self.codes = codes
        self.sizes = sizes

    @property
    def categories(self) -> tuple[int, ...]:
        """The places of the categories that its events are of."""
        return _categories(self.codes)

    def columns(self, changes: Sequence[int], edges: int, near: float = 0) -> list[Column]:
        """What each of so many edges does for the sizes; an edge that stays has no column.

        Fewer than ``near`` events cannot be told apart.
        """
        sizes = self.sizes(changes)
        if near > _FEW:
            return self._coarse(sizes, edges, near)
        found = []
        for one in _bends(self.codes, self.phase in _STAIRS):
            sums = list(accumulate(one.steps(sizes), initial=0))
            found.append(
                Column(
                    first=one.first,
                    end=edges if one.end is None else one.end,
                    offsets=one.offsets,
                    values=one.before(sums),
                    total=sums[-1],
                )
            )
        return found

    def _coarse(self, sizes: Sequence[int], edges: int, near: float) -> list[Column]:
        """Of events together the lowest and the highest, and what is there before and after all."""
        last = self.count
        starts = [int(at * near) + 1 for at in range(ceil((last - 1) / near))]
        together = [*pairwise([*starts, last])]
        ends = [*self.categories, edges]
        found = []
        moved = [map(mul, sizes, moves) for moves in _moves(self.codes)]
        for (first, end), moves in zip(pairwise(ends), [*moved, sizes], strict=False):
            sums = list(accumulate(moves, initial=0))
            offsets = [0]
            for begin, stop in together:
                some = sums[begin:stop]
                low, high = some.index(min(some)), some.index(max(some))
                if low < high:
                    offsets += begin + low, begin + high
                elif high < low:
                    offsets += begin + high, begin + low
                else:
                    offsets.append(begin + low)
            offsets.append(last)
            values = pick(offsets)(sums)
            found.append(
                Column(first=first, end=end, offsets=offsets, values=values, total=sums[-1])
            )
        return found


def itself(sizes: Sequence[int]) -> Sequence[int]:
    """Takes all of them."""
    return sizes


def bends(events: Sequence[Event]) -> tuple[Bending, Sequence[int]]:
    """Events of one phase as a stretch, and their sizes."""
    codes = tuple([2 * event.category.place + (event.bytes > 0) for event in events])
    sizes = [event.bytes for event in events]
    return Bending(events[0].phase, codes, itself), sizes
