"""A curve of the peak as a drawing, with the capacity's line and the point where they cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..axis import WIDE
from ..curves import Along, Curve
from ..units import show_bytes
from .area import TALL, is_near, top_of
from .scale import scale
from .svg import escape, share, text

# The drawing in CSS pixels.
_ABOVE, _PLOT, _BELOW = 22, 130, 24
HEIGHT = _ABOVE + _PLOT + _BELOW
_LINE = 14

TITLES = {
    Along.SEQUENCE: "Peak against sequence length",
    Along.MICRO_BATCH: "Peak against micro-batch",
    Along.GPUS: "Peak against GPUs",
}
UNITS = {
    Along.SEQUENCE: ("token", "tokens"),
    Along.MICRO_BATCH: ("sequence", "sequences"),
    Along.GPUS: ("GPU", "GPUs"),
}


def figures(curves: Sequence[Curve], *, binary: bool = False, prefix: str = "tm") -> str:
    """Every curve as a figure with its table."""
    return "".join(_figure(curve, binary=binary, prefix=prefix) for curve in curves)


def _figure(curve: Curve, *, binary: bool, prefix: str) -> str:
    return (
        '<figure class="tm-figure tm-curve-figure">'
        f'<p class="tm-heading">{TITLES[curve.along]}</p>'
        f"{drawing(curve, binary=binary, prefix=prefix)}"
        f'<figcaption class="tm-caption">{escape(said(curve, binary=binary))}</figcaption>'
        f"{_table(curve, binary=binary)}</figure>"
    )


def said(curve: Curve, *, binary: bool = False) -> str:
    """What the curve shows, in a sentence or two."""
    words = [_crossing(curve)]
    if curve.along is Along.GPUS:
        words.append(f"Replicas share their states by ZeRO-{curve.zero}.")
    at = dict(curve.points).get(curve.now)
    if at is not None:
        words.append(f"Now {_count(curve, curve.now)}: {show_bytes(at, binary=binary)}.")
    return " ".join(word for word in words if word)


def _crossing(curve: Curve) -> str:
    if curve.capacity_bytes is None:
        return "No GPU chosen, so there is no line to cross."
    if curve.last is None:
        return "Nothing that is drawn fits."
    if curve.along is Along.GPUS:
        return f"Fits from {_count(curve, curve.last)} on."
    beyond = ", beyond this drawing" if curve.last > curve.points[-1][0] else ""
    return f"Fits up to {_count(curve, curve.last)}{beyond}."


def _count(curve: Curve, value: int) -> str:
    one, many = UNITS[curve.along]
    return f"{value:,} {one if value == 1 else many}"


def drawing(curve: Curve, *, binary: bool = False, prefix: str = "tm") -> str:
    """The drawing alone, as wide as its place; the style sheet has its colours."""
    highest = max(peak for _, peak in curve.points)
    near = is_near(highest, curve.capacity_bytes)
    top = top_of(highest, curve.capacity_bytes)
    name = f"{prefix}-curve-{curve.along}"
    places = [(place(curve, value), peak) for value, peak in curve.points]
    path = "".join(
        f"{'L' if index else 'M'}{at} {TALL - peak * TALL // top}"
        for index, (at, peak) in enumerate(places)
    )
    ground = f"{path}L{places[-1][0]} {TALL}L{places[0][0]} {TALL}Z"
    return (
        f'<svg class="tm-curve" width="100%" height="{HEIGHT}" role="img" '
        f'aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{TITLES[curve.along]}</title>'
        f'<desc id="{name}-text">{escape(_spoken(curve, binary=binary))}</desc>'
        f'<svg x="0" y="{_ABOVE}" width="100%" height="{_PLOT}" viewBox="0 0 {WIDE} {TALL}" '
        f'preserveAspectRatio="none"><path class="tm-under" d="{ground}"/>'
        f'<path class="tm-line" d="{path}"/></svg>'
        f"{''.join(_grid(curve, top, near=near, binary=binary))}{''.join(_ticks(curve))}"
        f"{_capacity(curve, top) if near else ''}{_marks(curve, top, binary=binary)}</svg>"
    )


def place(curve: Curve, value: int, wide: int = WIDE) -> int:
    """Where a value stands from left to right: GPUs by doublings, all else evenly from 0."""
    largest = curve.points[-1][0]
    if curve.along is Along.GPUS:
        least = curve.points[0][0]
        # Whole numbers: every Python draws alike. An eighth of a doubling is near enough.
        whole = max(1, _doublings(largest, least))
        return _doublings(value, least) * wide // whole
    return value * wide // largest


def _doublings(value: int, least: int) -> int:
    """Eighths of doublings from ``least`` to ``value``."""
    return (value**8 // least**8).bit_length() - 1


def _grid(curve: Curve, top: int, *, near: bool, binary: bool) -> Iterator[str]:
    capacity = curve.capacity_bytes if near else None
    for size, label in scale(top, binary=binary, most=3).ticks[1:]:
        y = _height(size, top)
        if capacity is not None and abs(_height(capacity, top) - y) < _LINE:
            continue
        yield f'<line class="tm-grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield text(label, x="100%", y=y - 4, css="tm-tick-label", anchor="end")


def _height(size: int, top: int) -> int:
    return _ABOVE + _PLOT - size * _PLOT // top


def _ticks(curve: Curve) -> Iterator[str]:
    """The ends of the axis under it, and its middle where that is a doubling."""
    y = _ABOVE + _PLOT + 17
    first, last = curve.points[0][0], curve.points[-1][0]
    along_gpus = curve.along is Along.GPUS
    yield text(f"{first if along_gpus else 0:,}", x="0", y=y, css="tm-tick-label", anchor="start")
    middle = curve.points[len(curve.points) // 2][0] if along_gpus else last // 2
    x = share(place(curve, middle), WIDE)
    yield text(f"{middle:,}", x=x, y=y, css="tm-tick-label", anchor="middle")
    yield text(_count(curve, last), x="100%", y=y, css="tm-tick-label", anchor="end")


def _capacity(curve: Curve, top: int) -> str:
    assert curve.gpu is not None
    y = _height(curve.gpu.memory_bytes, top)
    line = f'<line class="tm-capacity" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
    # A curve that falls begins above the line, and one that rises below it.
    x, anchor = ("100%", "end") if curve.along is Along.GPUS else ("0", "start")
    return line + text(curve.gpu.name, x=x, y=y - 5, css="tm-mark", anchor=anchor)


def _marks(curve: Curve, top: int, *, binary: bool) -> str:
    """A dot where the run is, and a dotted line, named, where the curve crosses the capacity."""
    peaks = dict(curve.points)
    found = ""
    if curve.last is not None and curve.last in peaks:
        at = place(curve, curve.last)
        x, y = share(at, WIDE), _height(peaks[curve.last], top)
        found += (
            f'<line class="tm-peak" x1="{x}" x2="{x}" y1="{_ABOVE - 6}" y2="{_ABOVE + _PLOT}"/>'
            f'<circle class="tm-dot" cx="{x}" cy="{y}" r="4"/>'
        )
        words = "fits from " if curve.along is Along.GPUS else "fits up to "
        anchor = "start" if 5 * at < WIDE else "end" if 5 * at > 4 * WIDE else "middle"
        found += text(f"{words}{curve.last:,}", x=x, y=12, css="tm-mark", anchor=anchor)
    if curve.now in peaks:
        x, y = share(place(curve, curve.now), WIDE), _height(peaks[curve.now], top)
        size = show_bytes(peaks[curve.now], binary=binary)
        found += (
            f'<circle class="tm-now" cx="{x}" cy="{y}" r="4"><title>now: {size}</title></circle>'
        )
    return found


def _spoken(curve: Curve, *, binary: bool) -> str:
    """The curve in words: its ends and where it crosses."""
    (first, low), (last, high) = curve.points[0], curve.points[-1]
    ends = (
        f"From {show_bytes(low, binary=binary)} at {_count(curve, first)} to "
        f"{show_bytes(high, binary=binary)} at {_count(curve, last)}."
    )
    return f"{ends} {said(curve, binary=binary)}"


def _table(curve: Curve, *, binary: bool) -> str:
    rows = "".join(
        f'<tr><th scope="row">{value:,}</th><td class="tm-number">'
        f"{show_bytes(peak, binary=binary)}</td></tr>"
        for value, peak in curve.points
    )
    _, many = UNITS[curve.along]
    head = f'<tr><th scope="col">{many[0].upper()}{many[1:]}</th><th scope="col">Peak</th></tr>'
    return (
        f'<details class="tm-curve-table" data-key="curve-{curve.along}"><summary>As a table'
        f"</summary><table><thead>{head}</thead><tbody>{rows}</tbody></table></details>"
    )
