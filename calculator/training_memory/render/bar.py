"""The stacked bar: each kind of memory at its largest, the peak and the GPU's capacity as lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ..categories import Category
from ..estimate import Estimate, RankEstimate
from .room import BREAKS, NARROWEST, Label, room_from
from .scale import scale
from .sizes import Show, sizes
from .svg import escape, patterned, share, swatch, text
from .words import MEANING, term

#: A capacity this many times what is needed would leave nothing of the bar to see.
_FAR = 20

# The bar's place in its drawing, in CSS pixels.
_TOP, _HEIGHT, _TICKS = 42, 52, 110
HEIGHT = 116

# About how wide a character of a segment's name and value is, and the room around it, in 1/100 rem.
_NAME, _VALUE, _AROUND = 31, 38, 50


def bar(estimate: Estimate, *, binary: bool = False, prefix: str = "tm") -> str:
    """The bar of the fullest GPU, with its legend. ``prefix`` makes its ids unique on the page."""
    worst = estimate.worst
    together = sum(worst.totals.values())
    show = sizes(together, binary=binary)
    drawn = drawing(estimate, binary=binary, prefix=prefix)
    return f"{drawn}{_legend(worst, show, prefix)}{_caption(worst, together, show)}"


def drawing(
    estimate: Estimate,
    *,
    binary: bool = False,
    prefix: str = "tm",
    name: str = "bar",
    beside: Estimate | None = None,
) -> str:
    """The bar alone; with ``beside``, on a scale on which that one's bar can be drawn as well.

    ``name`` tells apart the ids of several on a page.
    """
    worst = estimate.worst
    together = sum(worst.totals.values())
    most = max(together, sum(beside.worst.totals.values()) if beside else 0)
    capacity = estimate.capacity_bytes
    near = capacity is not None and capacity <= _FAR * most
    longest = max(most, capacity) if capacity is not None and near else most
    top = longest + longest // 50 + 1
    show = sizes(together, binary=binary)
    shown = [(category, size, show(size)) for category, size in worst.totals.items()]
    parts = [
        *_ticks(top, binary=binary),
        *_segments(shown, top, prefix),
        *(_capacity(estimate, top, near=near) if capacity is not None else ()),
        _line("peak", worst.peak_bytes, top, 24),
        _label(f"Peak {show(worst.peak_bytes)}", worst.peak_bytes, top, 34),
        *_labels(shown, top),
    ]
    return (
        f'<svg class="tm-bar" width="100%" height="{HEIGHT}" role="img" '
        f'aria-labelledby="{prefix}-{name}-title {prefix}-{name}-text">'
        f'<title id="{prefix}-{name}-title">Memory by kind</title>'
        f'<desc id="{prefix}-{name}-text">{escape(_spoken(estimate, show))}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _ticks(top: int, *, binary: bool) -> Iterator[str]:
    """The scale under the bar; the capacity's and the peak's labels stand above it.

    Where the drawing is too narrow for all labels, every other one stands.
    """
    bottom = _TOP + _HEIGHT
    labels = [
        Label(words=words, place=size, anchor=_anchor(size, top))
        for size, words in scale(top, binary=binary, most=4).ticks
    ]
    room = room_from(labels, top)
    for index, label in enumerate(labels):
        x = share(label.place, top)
        roomy = f" tm-roomy tm-from-{room}" if index % 2 and room > NARROWEST else ""
        yield f'<line class="tm-tick" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}"/>'
        yield label.drawn(top, y=_TICKS, css=f"tm-tick-label{roomy}")


#: A kind of memory, its bytes, and these as they are shown.
_Shown = tuple[Category, int, str]


def _segments(shown: Sequence[_Shown], top: int, prefix: str) -> Iterator[str]:
    start = 0
    for category, size, value in shown:
        place = f'x="{share(start, top)}" y="{_TOP}" width="{share(size, top)}" height="{_HEIGHT}"'
        pattern = (
            f'<rect {place} fill="url(#{prefix}-pattern-{category})"/>'
            if patterned(category)
            else ""
        )
        # Empty segments are drawn as well: the next answer then moves what is there.
        yield (
            f'<g class="tm-segment"><title>{category.heading}: {value}</title>'
            f'<rect class="tm-{category}" {place}/>{pattern}</g>'
        )
        start += size


def _labels(shown: Sequence[_Shown], top: int) -> Iterator[str]:
    """What stands within the segments, above the lines that cross them."""
    start = 0
    for category, size, value in shown:
        yield f"<g>{_inside(category, value, start, size, top)}</g>"
        start += size


def _inside(category: Category, value: str, start: int, size: int, top: int) -> str:
    """A segment's name and value, each shown once the drawing is wide enough for it."""
    if not size:
        return ""
    x = share(2 * start + size, 2 * top)
    both = _break(max(_NAME * len(category.heading), _VALUE * len(value)) + _AROUND, size, top)
    alone = _break(_VALUE * len(value) + _AROUND, size, top)
    middle = _TOP + _HEIGHT // 2
    found = ""
    if alone is not None and alone != both:
        until = f" tm-below-{both}" if both is not None else ""
        css = f"tm-on tm-on-{category} tm-value tm-from-{alone}{until}"
        found += text(value, x=x, y=middle + 5, css=css, anchor="middle")
    if both is not None:
        css = f"tm-on tm-on-{category} tm-from-{both}"
        found += text(category.heading, x=x, y=middle - 5, css=f"{css} tm-name", anchor="middle")
        found += text(value, x=x, y=middle + 12, css=f"{css} tm-value", anchor="middle")
    return found


def _break(needed: int, size: int, top: int) -> int | None:
    """The least of :data:`BREAKS` at which a segment is ``needed`` (1/100 rem) wide, if any."""
    place = bisect_left(BREAKS, -(-needed * top // (100 * size)))
    return BREAKS[place] if place < len(BREAKS) else None


def _capacity(estimate: Estimate, top: int, *, near: bool) -> Iterator[str]:
    gpu, capacity = estimate.run.gpu, estimate.capacity_bytes
    assert gpu is not None
    assert capacity is not None
    if near:
        yield _line("capacity", capacity, top, 6)
        yield _label(gpu.name, capacity, top, 14)
    else:
        yield text(f"{gpu.name}, far beyond →", x="100%", y=14, css="tm-mark", anchor="end")


def _line(kind: str, size: int, top: int, y: int) -> str:
    x = share(size, top)
    return f'<line class="tm-{kind}" x1="{x}" x2="{x}" y1="{y}" y2="{_TOP + _HEIGHT + 4}"/>'


def _label(words: str, size: int, top: int, y: int) -> str:
    """A line's name beside it, on the side where there is room."""
    left = 2 * size > top
    offset = -6 if left else 6
    anchor = "end" if left else "start"
    return (
        f'<text class="tm-mark" x="{share(size, top)}" dx="{offset}" y="{y}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def _anchor(size: int, top: int) -> str:
    """Where a label stands so that it does not leave the drawing at its ends."""
    if 12 * size < top:
        return "start"
    return "end" if 12 * size > 11 * top else "middle"


def _spoken(estimate: Estimate, show: Show) -> str:
    """The drawing in words."""
    worst = estimate.worst
    sizes = ", ".join(
        f"{category.heading.lower()} {show(size)}"
        for category, size in worst.totals.items()
        if size
    )
    said = (
        f"Each kind of memory at its largest over the step: {sizes}. "
        f"The peak is at {show(worst.peak_bytes)}."
    )
    if estimate.run.gpu is not None:
        said += f" The {estimate.run.gpu.name} ends at {show(estimate.run.gpu.memory_bytes)}."
    return said


def _legend(on: RankEstimate, show: Show, prefix: str) -> str:
    """Every kind with its value: also the kinds of which there is nothing, so that none moves."""
    items = "".join(
        f'<li class="{"" if size else "tm-none"}">{swatch(category, prefix)}'
        f"{term(category.heading, MEANING[category], f'{prefix}-means-{category}')}"
        f' <span class="tm-number">{show(size)}</span></li>'
        for category, size in on.totals.items()
    )
    return f'<ul class="tm-legend">{items}</ul>'


def _caption(on: RankEstimate, together: int, show: Show) -> str:
    summed, peak = show(together), show(on.peak_bytes)
    if summed == peak:
        words = f"All of it is in memory together at the peak: {peak}."
    else:
        words = (
            f"The parts add up to {summed}, but are never all there at once: the peak is {peak}."
        )
    return f'<figcaption class="tm-caption">{words}</figcaption>'
