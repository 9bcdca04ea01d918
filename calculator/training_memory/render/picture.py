"""The bar as a picture that stands alone: fixed sizes, its own colours, its answer in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..categories import Category
from ..estimate import Estimate
from .answer import answer
from .scale import scale
from .sizes import sizes
from .svg import escape, patterned, patterns
from .table import wrapped

#: The colours of the page's light scheme; a test holds them to its style sheet.
COLOURS: Mapping[Category, tuple[str, str]] = {
    Category.WEIGHTS: ("#0b4f8a", "#ffffff"),
    Category.GRADIENTS: ("#d3572a", "#0d1016"),
    Category.OPTIMIZER: ("#108268", "#ffffff"),
    Category.MASTER: ("#4098d7", "#0d1016"),
    Category.ACTIVATIONS: ("#c48600", "#0d1016"),
    Category.RECOMPUTED: ("#754c00", "#ffffff"),
    Category.LOGITS: ("#9a3a7c", "#ffffff"),
    Category.TEMPORARY: ("#3f4754", "#ffffff"),
}

_WIDTH, _MARGIN, _BAR = 960, 24, 56
_LETTERS = 110  # of the answer in a line
_INK, _MUTED = "#1a1a1a", "#5b5b5b"
_FONT = "font-family=\"system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif\""
_PATTERN = 'fill="none" stroke="#ffffff" stroke-opacity="0.3" stroke-width="1"'
#: About how wide a letter is, in tenths of a pixel, at the bar's sizes.
_LETTER = 72


def picture(estimate: Estimate, *, binary: bool = False) -> str:
    """An SVG document: the answer, the bar of the fullest GPU with peak and capacity, a legend."""
    worst = estimate.worst
    together = sum(worst.totals.values())
    capacity = estimate.capacity_bytes
    near = capacity if capacity is not None and capacity <= 20 * together else None
    longest = max(together, near or 0, 1)
    top = longest + longest // 50 + 1
    show = sizes(together, binary=binary)
    lines = wrapped(answer(estimate, binary=binary), _LETTERS)
    bar = 40 + 22 * len(lines) + 44
    legend = bar + _BAR + 62
    held = [category for category in worst.totals if worst.totals[category]]
    height = legend + 24 * (-(-len(held) // 3)) + 8
    parts = [
        *(_text(line, _MARGIN, 40 + 22 * row, size=16) for row, line in enumerate(lines)),
        *_segments(worst.totals, bar, top, show),
        *_ticks(bar, top, binary=binary),
        *_mark(f"Peak {show(worst.peak_bytes)}", worst.peak_bytes, bar, top, dashed=True),
        *(_mark(_gpu(estimate), near, bar, top, dashed=False) if near is not None else ()),
        *_legend([(category, show(worst.totals[category])) for category in held], legend),
    ]
    title = escape(answer(estimate, binary=binary))
    tiles = patterns("x").partition("<defs>")[2].partition("</defs>")[0]
    tiles = tiles.replace('class="tm-pattern"', _PATTERN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" {_FONT}><title>{title}</title>'
        f'<defs>{tiles}</defs><rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _gpu(estimate: Estimate) -> str:
    gpu = estimate.run.gpu
    return gpu.name if gpu else ""


def _x(size: int, top: int) -> int:
    """Where a size stands, in hundredths of a pixel."""
    return 100 * _MARGIN + (100 * (_WIDTH - 2 * _MARGIN) * size + top // 2) // top


def _px(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def _text(words: str, x: int | str, y: int, *, size: int, fill: str = _INK, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}"{more}>{escape(words)}</text>'


def _segments(totals: Mapping[Category, int], bar: int, top: int, show: object) -> Iterator[str]:
    assert callable(show)
    start = 0
    for category, size in totals.items():
        if not size:
            continue
        left, right = _x(start, top), _x(start + size, top)
        start += size
        place = f'x="{_px(left)}" y="{bar}" width="{_px(right - left)}" height="{_BAR}"'
        yield f'<rect {place} fill="{COLOURS[category][0]}"/>'
        if patterned(category):
            yield f'<rect {place} fill="url(#x-pattern-{category})"/>'
        ink = COLOURS[category][1]
        middle = _px((left + right) // 2)
        value = show(size)
        for words, y in ((category.heading, bar + 24), (value, bar + 42)):
            if 10 * (right - left) >= 100 * _LETTER * (len(words) + 2):
                more = ' text-anchor="middle"'
                yield _text(words, middle, y, size=13, fill=ink, more=more)


def _ticks(bar: int, top: int, *, binary: bool) -> Iterator[str]:
    below = bar + _BAR
    for size, words in scale(top, binary=binary, most=5).ticks:
        x = _px(_x(size, top))
        yield f'<path d="M{x} {below}v5" stroke="{_MUTED}"/>'
        more = ' text-anchor="middle"' if size else ""
        yield _text(words, x, below + 20, size=12, fill=_MUTED, more=more)


def _mark(words: str, size: int, bar: int, top: int, *, dashed: bool) -> Iterator[str]:
    x, y = _px(_x(size, top)), bar - (14 if dashed else 30)
    dash = ' stroke-dasharray="5 3"' if dashed else ""
    yield f'<path d="M{x} {y - 8}V{bar + _BAR + 5}" stroke="{_INK}" stroke-width="2"{dash}/>'
    left = 2 * size > top
    more = f' dx="{-6 if left else 6}" font-weight="700" text-anchor="{"end" if left else "start"}"'
    yield _text(words, x, y, size=13, more=more)


def _legend(items: list[tuple[Category, str]], y: int) -> Iterator[str]:
    for place, (category, value) in enumerate(items):
        x, row = _MARGIN + 310 * (place % 3), y + 24 * (place // 3)
        square = f'x="{x}" y="{row}" width="12" height="12" rx="2"'
        yield f'<rect {square} fill="{COLOURS[category][0]}"/>'
        if patterned(category):
            yield f'<rect {square} fill="url(#x-pattern-{category})"/>'
        yield _text(f"{category.heading}  {value}", x + 20, row + 11, size=13)
