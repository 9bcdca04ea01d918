"""The stacked area of a step, as shapes on one grid: for every picture of a step, large or small.

A picture stretches the grid (``WIDE`` by ``TALL``) to its own size and draws its labels over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, compress, pairwise
from operator import ne, or_

from ..axis import WIDE
from ..categories import CATEGORIES
from ..edges import Edge
from ..events import Phase
from ..timeline import Point

#: The grid's height; its width is the axis's.
TALL = 1_000

#: A capacity this many times the peak would press the step flat.
_FAR = 4


def areas(edges: Sequence[Edge], top: int) -> Iterator[str]:
    """A path a category, each drawn from the ground up to its edge, the uppermost first.

    ``top`` is the bytes at the grid's upper end.
    """
    before: Edge | None = None
    path = ""
    for category in reversed(CATEGORIES):
        edge = edges[category.place]
        if edge != before:  # a category that the step has nothing of adds nothing to its edge
            path = _path(edge, top)
        before = edge
        yield f'<path class="tm-{category}" d="M0 {TALL}{path}V{TALL}Z"/>'


def _path(edge: Edge, top: int) -> str:
    """A path through an edge's corners without those in the middle of a level stretch."""
    places, sizes = edge
    # Divided as floats, which is quicker: exact as long as what is divided is below 2**53.
    heights = [TALL - int(size * TALL / top) for size in sizes]
    turns = [True, *map(ne, heights, heights[1:]), True]
    drawn = compress(zip(places, heights, strict=True), map(or_, turns, turns[1:]))
    found = tuple(chain.from_iterable(drawn))
    # All at once: corner by corner it would take several times as long.
    return "L%d %d" * (len(found) // 2) % found


def stairs(points: Sequence[Point], places: Sequence[int]) -> list[Edge]:
    """The edges of memory that stays as each event leaves it until the next.

    ``places`` are where the events happen. Where points are left out between two, a straight line
    leads from the one to what the other found.
    """
    along: list[int] = []
    found: list[tuple[int, ...]] = []
    sums: tuple[int, ...] = (0,) * len(CATEGORIES)
    for point, place in zip(points, places, strict=True):
        sums = tuple(accumulate(point.parts))
        change, own = point.event.bytes, point.event.category.place
        along += place, place
        found += tuple(size - change * (edge >= own) for edge, size in enumerate(sums)), sums
    return [((*along, WIDE), sizes) for sizes in zip(*found, sums, strict=True)]


def turning(points: Sequence[Point]) -> Iterator[int]:
    """Which points the line turns at, or where it changes phase or what it is made of."""
    last = len(points) - 1
    rises = [after.total > point.total for point, after in pairwise(points)]
    for index, point in enumerate(points):
        if 0 < index < last and rises[index - 1] == rises[index]:
            event, after = point.event, points[index + 1].event
            if event.phase is after.phase and event.category is after.category:
                continue
        yield index


def bands(points: Sequence[Point], places: Sequence[int]) -> list[tuple[Phase, int, int]]:
    """Stretches of one phase: the phase, where it starts and where it ends.

    ``places`` are where the points' events end.
    """
    found: list[tuple[Phase, int, int]] = []
    for point, place in zip(points, places, strict=True):
        if found and found[-1][0] is point.event.phase:
            found[-1] = (found[-1][0], found[-1][1], place)
        else:
            found.append((point.event.phase, found[-1][2] if found else 0, place))
    return found


def is_near(peak_bytes: int, capacity_bytes: int | None) -> bool:
    """Whether a picture of the peak has room for the capacity as well."""
    return capacity_bytes is not None and capacity_bytes <= _FAR * peak_bytes


def top_of(peak_bytes: int, capacity_bytes: int | None) -> int:
    """The bytes at the upper end of a picture of a peak and of a capacity that is near."""
    longest = peak_bytes
    if capacity_bytes is not None and is_near(peak_bytes, capacity_bytes):
        longest = max(peak_bytes, capacity_bytes)
    return longest + longest // 20 + 1
