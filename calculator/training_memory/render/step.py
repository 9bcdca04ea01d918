"""One training step as an area: memory over its events, the peak and the capacity marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..axis import WIDE
from ..edges import Band, edges
from ..estimate import Estimate, RankEstimate
from ..events import Phase
from ..units import show_bytes
from .area import TALL, areas, is_near, top_of
from .room import NARROWEST, Label, room_from, spread
from .scale import scale
from .svg import escape, share, text

#: Events drawn of a long step; more could not be told apart.
_MOST = 1000
#: Bands above which the phases are told in one sentence, since they would be too thin to name.
_BANDS = 6

# The drawing in CSS pixels.
_ABOVE, _PLOT, _BELOW = 22, 130, 24
_LINE = 14
HEIGHT = _ABOVE + _PLOT + _BELOW


def step(estimate: Estimate, *, binary: bool = False, prefix: str = "tm") -> str:
    """The step of the fullest GPU as an area chart with its caption."""
    worst = estimate.worst
    peak = worst.peak_bytes
    capacity = estimate.capacity_bytes
    near = is_near(peak, capacity)
    top = top_of(peak, capacity)
    drawn = edges(worst.plan, _MOST)
    said = f"The peak comes {worst.peak_moment}: {show_bytes(peak, binary=binary)}."
    return (
        f'<svg class="tm-step" width="100%" height="{HEIGHT}" role="img" '
        f'aria-labelledby="{prefix}-step-title {prefix}-step-text">'
        f'<title id="{prefix}-step-title">Memory over one training step</title>'
        f'<desc id="{prefix}-step-text">{escape(_spoken(worst, drawn.bands, binary=binary))}</desc>'
        f'<svg x="0" y="{_ABOVE}" width="100%" height="{_PLOT}" viewBox="0 0 {WIDE} {TALL}" '
        f'preserveAspectRatio="none">{"".join(areas(drawn.edges, top))}</svg>'
        f"{''.join(_grid(top, capacity if near else None, binary=binary))}"
        f"{''.join(_phases(drawn.bands))}"
        f"{_capacity(estimate, top, drawn.peak) if near else ''}"
        f"{_peak(worst, drawn.peak, top, binary=binary)}</svg>"
        f'<figcaption class="tm-caption">{escape(said)}</figcaption>'
    )


def _grid(top: int, capacity: int | None, *, binary: bool) -> Iterator[str]:
    """Level lines at round sizes, but for those that the capacity's line stands in for."""
    for size, label in scale(top, binary=binary, most=3).ticks[1:]:
        y = _height(size, top)
        if capacity is not None and abs(_height(capacity, top) - y) < _LINE:
            continue
        yield f'<line class="tm-grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield text(label, x="100%", y=y - 4, css="tm-tick-label", anchor="end")


def _height(size: int, top: int) -> int:
    return _ABOVE + _PLOT - size * _PLOT // top


def _phases(found: Sequence[Band]) -> Iterator[str]:
    """Each phase's name under its stretch, with a line where the next begins."""
    bottom = _ABOVE + _PLOT
    if len(found) <= _BANDS:
        for band in found:
            if band.start:
                at = share(band.start, WIDE)
                place = f'x1="{at}" x2="{at}"'
                yield f'<line class="tm-between" {place} y1="{_ABOVE}" y2="{bottom + 6}"/>'
        labels = [_phase(band) for band in found]
    else:
        labels = [_told("forward and backward passes in turn, then the optimizer")]
    room = room_from(labels, WIDE)
    narrow = room > NARROWEST
    roomy = f" tm-roomy tm-from-{room}" if narrow else ""
    yield from (label.drawn(WIDE, y=bottom + 17, css=f"tm-phase{roomy}") for label in labels)
    if narrow:
        labels = spread(labels, WIDE) or [_told("passes in turn, then the optimizer")]
        css = f"tm-phase tm-below-{room}"
        yield from (label.drawn(WIDE, y=bottom + 17, css=css) for label in labels)


def _told(words: str) -> Label:
    """One label for all phases."""
    return Label(words=words, place=WIDE // 2, anchor="middle")


def _phase(band: Band) -> Label:
    words = "states" if band.phase is Phase.BEFORE else str(band.phase)
    start, end = band.start, band.end
    if end == WIDE:
        return Label(words=words, place=WIDE, anchor="end")
    if start == 0:
        return Label(words=words, place=0, anchor="start")
    return Label(words=words, place=(start + end) // 2, anchor="middle")


def _capacity(estimate: Estimate, top: int, at_peak: int) -> str:
    """The GPU's line, named at the end that is farther from the peak."""
    gpu = estimate.run.gpu
    assert gpu is not None
    y = _height(gpu.memory_bytes, top)
    line = f'<line class="tm-capacity" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
    left = 2 * at_peak > WIDE
    x, anchor = ("0", "start") if left else ("100%", "end")
    return line + text(gpu.name, x=x, y=y - 5, css="tm-mark", anchor=anchor)


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


def _spoken(on: RankEstimate, bands: Sequence[Band], *, binary: bool) -> str:
    """The curve in words: where each phase leaves it."""
    ends = {band.phase: band.bytes for band in bands}
    said = ", ".join(
        f"{show_bytes(size, binary=binary)} after {phase}" for phase, size in ends.items()
    )
    said = said.replace(f"after {Phase.BEFORE}", f"{Phase.BEFORE}")
    return f"Memory is {said}. The peak comes {on.peak_moment}."
