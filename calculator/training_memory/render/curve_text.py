"""A curve of the peak for a terminal, as a table for a program, and as a picture by itself."""

from __future__ import annotations

from collections.abc import Iterator

from ..curves import Along, Curve
from ..run import Run
from ..units import show_bytes
from .answer import described
from .curve import TITLES, UNITS, place, said
from .scale import scale
from .svg import escape
from .terminal import Terminal

#: The least and the most columns of a bar.
_LEAST, _MOST = 12, 48


def curve_text(curve: Curve, run: Run, terminal: Terminal, *, binary: bool = False) -> str:
    """What the curve says, then a line for each point, the capacity a mark in each."""
    _, many = UNITS[curve.along]
    rows = [(f"{value:,}", show_bytes(peak, binary=binary), peak) for value, peak in curve.points]
    first = max(len(many), *(len(value) for value, _, _ in rows))
    second = max(len(shown) for _, shown, _ in rows)
    width = min(_MOST, max(_LEAST, terminal.width - first - second - 12))
    lines = terminal.prose(f"{TITLES[curve.along]}: {described(run)}.")
    lines += terminal.prose(said(curve, binary=binary))
    lines += ["", terminal.strong(f"  {many:>{first}}  {'peak':>{second}}")]
    for (value, shown, peak), (at, _) in zip(rows, curve.points, strict=True):
        note = " last that fits" if at == curve.last and curve.along is not Along.GPUS else ""
        note = " first that fits" if at == curve.last and curve.along is Along.GPUS else note
        note += " now" if at == curve.now else ""
        bar = _bar(curve, peak, width)
        lines.append(f"  {value:>{first}}  {shown:>{second}}  {bar}{note}".rstrip())
    return "\n".join(lines) + "\n"


def _bar(curve: Curve, peak: int, width: int) -> str:
    top = max(most for _, most in curve.points)
    cells = list(("█" * (peak * width // top)).ljust(width))
    if curve.capacity_bytes is not None and curve.capacity_bytes <= top:
        cells[min(width - 1, curve.capacity_bytes * width // top)] = "┃"
    return "".join(cells)


def curve_csv(curve: Curve) -> str:
    """A row for each point, in bytes (RFC 4180); the last column says whether it fits."""
    capacity = curve.capacity_bytes
    rows = [f"{curve.along},peak_bytes,capacity_bytes,fits"]
    for value, peak in curve.points:
        fits = "" if capacity is None else "no" if peak > capacity else "yes"
        rows.append(f"{value},{peak},{capacity or ''},{fits}")
    return "".join(f"{row}\r\n" for row in rows)


_WIDTH, _HEIGHT, _LEFT, _ABOVE, _PLOT = 720, 360, 72, 84, 220
_INK, _MUTED, _LINE = "#1a1a1a", "#5b5b5b", "#0b4f8a"
_FONT = "font-family=\"system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif\""


def curve_svg(curve: Curve, run: Run, *, binary: bool = False) -> str:
    """An SVG document: the line, the capacity and the named point where they cross."""
    highest = max(peak for _, peak in curve.points)
    top = max(highest, curve.capacity_bytes or 0)
    top += top // 20
    points = [(_x(curve, value), _y(peak, top)) for value, peak in curve.points]
    path = "M" + "L".join(f"{x} {y}" for x, y in points)
    parts = [
        _text(TITLES[curve.along], _LEFT, 28, size=16, more=' font-weight="700"'),
        _text(f"{described(run)}.", _LEFT, 48, fill=_MUTED),
        _text(said(curve, binary=binary), _LEFT, 66),
        *_axes(curve, top, binary=binary),
        f'<path d="{path}" fill="none" stroke="{_LINE}" stroke-width="2"/>',
        *_crossing(curve, top),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" {_FONT}>'
        f"<title>{escape(TITLES[curve.along])}</title>"
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _x(curve: Curve, value: int) -> int:
    return _LEFT + place(curve, value, _WIDTH - _LEFT - 24)


def _y(size: int, top: int) -> int:
    return _ABOVE + _PLOT - size * _PLOT // top


def _text(words: str, x: int, y: int, *, size: int = 12, fill: str = _INK, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}"{more}>{escape(words)}</text>'


def _axes(curve: Curve, top: int, *, binary: bool) -> Iterator[str]:
    for size, label in scale(top, binary=binary, most=5).ticks:
        y = _y(size, top)
        yield f'<path d="M{_LEFT} {y}H{_WIDTH - 24}" stroke="#dddddd"/>'
        yield _text(label, _LEFT - 8, y + 4, fill=_MUTED, more=' text-anchor="end"')
    one, many = UNITS[curve.along]
    chosen = {curve.points[0][0], curve.points[len(curve.points) // 2][0], curve.points[-1][0]}
    for value in sorted(chosen):
        words = f"{value:,} {one if value == 1 else many}"
        anchor = "end" if value == curve.points[-1][0] else "middle"
        more = f' text-anchor="{anchor}"'
        yield _text(words, _x(curve, value), _ABOVE + _PLOT + 20, fill=_MUTED, more=more)


def _crossing(curve: Curve, top: int) -> Iterator[str]:
    if curve.gpu is not None:
        y = _y(curve.gpu.memory_bytes, top)
        yield f'<path d="M{_LEFT} {y}H{_WIDTH - 24}" stroke="{_INK}" stroke-width="2"/>'
        yield _text(curve.gpu.name, _WIDTH - 24, y - 6, more=' text-anchor="end"')
    peak = dict(curve.points).get(curve.last or 0)
    if curve.last is not None and peak is not None:
        x, y = _x(curve, curve.last), _y(peak, top)
        from_ = "from" if curve.along is Along.GPUS else "up to"
        yield f'<circle cx="{x}" cy="{y}" r="4" fill="{_LINE}"/>'
        yield f'<path d="M{x} {y}V{_ABOVE + _PLOT}" stroke="{_INK}" stroke-dasharray="4 3"/>'
        more = ' font-weight="700"'
        yield _text(f"fits {from_} {curve.last:,}", x + 6, _ABOVE + _PLOT - 8, more=more)
