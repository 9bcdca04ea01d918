"""One training step as an area: memory over its events, the peak and the capacity marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from ..axis import WIDE, Axis
from ..categories import CATEGORIES
from ..estimate import Estimate, RankEstimate
from ..events import Phase
from ..timeline import Point, timeline
from ..units import show_bytes
from .scale import scale
from .svg import escape, share, text

#: A capacity this many times the peak would press the step flat.
_FAR = 4
#: Points asked of a long step; more could not be told apart.
_MOST = 600
#: Bands above which the phases are told in one sentence, since they would be too thin to name.
_BANDS = 6

# The height of the areas' own grid, which is stretched to the drawing; the drawing in CSS pixels.
_TALL = 1_000
_ABOVE, _PLOT, _BELOW = 22, 130, 24
HEIGHT = _ABOVE + _PLOT + _BELOW


def step(estimate: Estimate, *, binary: bool = False, prefix: str = "tm") -> str:
    """The step of the fullest GPU as an area chart with its caption."""
    worst = estimate.worst
    peak = worst.peak_bytes
    capacity = estimate.capacity_bytes
    near = capacity is not None and capacity <= _FAR * peak
    longest = max(peak, capacity) if capacity is not None and near else peak
    top = longest + longest // 20 + 1
    axis = Axis(worst.tree)
    points = list(_turning(timeline(worst.tree, _MOST)))
    places = [axis.after(point.at) for point in points]
    at_peak = next(
        place for place, point in zip(places, points, strict=True) if point.total == peak
    )
    corners = list(_corners(points, places))
    said = f"The peak comes {worst.peak_moment}: {show_bytes(peak, binary=binary)}."
    return (
        f'<svg class="tm-step" width="100%" height="{HEIGHT}" role="img" '
        f'aria-labelledby="{prefix}-step-title {prefix}-step-text">'
        f'<title id="{prefix}-step-title">Memory over one training step</title>'
        f'<desc id="{prefix}-step-text">{escape(_spoken(worst, points, binary=binary))}</desc>'
        f'<svg x="0" y="{_ABOVE}" width="100%" height="{_PLOT}" viewBox="0 0 {WIDE} {_TALL}" '
        f'preserveAspectRatio="none">{"".join(_areas(corners, top))}</svg>'
        f"{''.join(_grid(top, binary=binary))}"
        f"{''.join(_phases(points, places))}"
        f"{_capacity(estimate, top) if near else ''}"
        f"{_peak(worst, at_peak, top, binary=binary)}</svg>"
        f'<figcaption class="tm-caption">{escape(said)}</figcaption>'
    )


def _turning(points: Sequence[Point]) -> Iterator[Point]:
    """The points at which the line turns, changes phase or changes what it is made of."""
    for before, point, after in zip((None, *points), points, (*points[1:], None), strict=False):
        if (
            before is None
            or after is None
            or point.event.phase is not after.event.phase
            or point.event.category is not after.event.category
            or (point.total > before.total) != (after.total > point.total)
        ):
            yield point


def _corners(points: Sequence[Point], places: Sequence[int]) -> Iterator[_Corner]:
    """Where the edges of the areas bend: a place on the width, and the bytes below each edge.

    An event with a stretch to itself happens in the middle of it: gradients are held while the
    optimizer works.
    """
    start, before = 0, (0,) * len(CATEGORIES)
    for point, place in zip(points, places, strict=True):
        sums = tuple(accumulate(point.parts))
        if point.event.phase in (Phase.LOSS, Phase.OPTIMIZER):
            middle = (start + place) // 2
            yield middle, before
            yield middle, sums
        yield place, sums
        start, before = place, sums


_Corner = tuple[int, tuple[int, ...]]


def _areas(corners: Sequence[_Corner], top: int) -> Iterator[str]:
    """An area a category, each drawn from the ground up to its upper edge, the uppermost first."""
    places = [place for place, _ in corners]
    for category in reversed(CATEGORIES):
        heights = [_TALL - sums[category.place] * _TALL // top for _, sums in corners]
        line = _outline(places, heights)
        yield f'<path class="tm-{category}" d="M0 {_TALL}{line}V{_TALL}Z"/>'


def _outline(places: Sequence[int], heights: Sequence[int]) -> str:
    """A path through the points without those in the middle of a level stretch."""
    found = ""
    last = len(places) - 1
    for index, (place, height) in enumerate(zip(places, heights, strict=True)):
        if 0 < index < last and heights[index - 1] == height == heights[index + 1]:
            continue
        found += f"L{place} {height}"
    return found


def _grid(top: int, *, binary: bool) -> Iterator[str]:
    for size, label in scale(top, binary=binary, most=3).ticks[1:]:
        y = _height(size, top)
        yield f'<line class="tm-grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield text(label, x="100%", y=y - 4, css="tm-tick-label", anchor="end")


def _height(size: int, top: int) -> int:
    return _ABOVE + _PLOT - size * _PLOT // top


def _phases(points: Sequence[Point], places: Sequence[int]) -> Iterator[str]:
    """Each phase's name under its stretch, with a line where the next begins."""
    bands = _bands(points, places)
    bottom = _ABOVE + _PLOT
    if len(bands) > _BANDS:
        yield text(
            "forward and backward passes in turn, then the optimizer",
            x="50%",
            y=bottom + 17,
            css="tm-phase",
            anchor="middle",
        )
        return
    for phase, start, end in bands:
        if start:
            x = share(start, WIDE)
            yield f'<line class="tm-between" x1="{x}" x2="{x}" y1="{_ABOVE}" y2="{bottom + 6}"/>'
        words = "states" if phase is Phase.BEFORE else str(phase)
        anchor = "end" if end == WIDE else "middle" if start else "start"
        place = end if end == WIDE else (start + end) // 2 if start else 0
        yield text(words, x=share(place, WIDE), y=bottom + 17, css="tm-phase", anchor=anchor)


def _bands(points: Sequence[Point], places: Sequence[int]) -> list[tuple[Phase, int, int]]:
    """Stretches of one phase: the phase, where it starts and where it ends."""
    bands: list[tuple[Phase, int, int]] = []
    for point, place in zip(points, places, strict=True):
        if bands and bands[-1][0] is point.event.phase:
            bands[-1] = (bands[-1][0], bands[-1][1], place)
        else:
            bands.append((point.event.phase, bands[-1][2] if bands else 0, place))
    return bands


def _capacity(estimate: Estimate, top: int) -> str:
    gpu = estimate.run.gpu
    assert gpu is not None
    y = _height(gpu.memory_bytes, top)
    line = f'<line class="tm-capacity" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
    return line + text(gpu.name, x="0", y=y - 5, css="tm-mark")


def _peak(on: RankEstimate, place: int, top: int, *, binary: bool) -> str:
    """A dot on the highest point, a dotted line through it, and its size above."""
    x, y = share(place, WIDE), _height(on.peak_bytes, top)
    anchor = "start" if 5 * place < WIDE else "end" if 5 * place > 4 * WIDE else "middle"
    words = f"Peak {show_bytes(on.peak_bytes, binary=binary)}"
    return (
        f'<line class="tm-peak" x1="{x}" x2="{x}" y1="{_ABOVE - 6}" y2="{_ABOVE + _PLOT}"/>'
        f'<circle class="tm-dot" cx="{x}" cy="{y}" r="4"/>'
        f"{text(words, x=x, y=12, css='tm-mark', anchor=anchor)}"
    )


def _spoken(on: RankEstimate, points: Sequence[Point], *, binary: bool) -> str:
    """The curve in words: where each phase leaves it."""
    ends: dict[Phase, int] = {}
    for point in points:
        ends[point.event.phase] = point.total
    said = ", ".join(
        f"{show_bytes(size, binary=binary)} after {phase}" for phase, size in ends.items()
    )
    said = said.replace(f"after {Phase.BEFORE}", f"{Phase.BEFORE}")
    return f"Memory is {said}. The peak comes {on.peak_moment}."
