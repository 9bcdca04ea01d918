"""The few pieces of markup that all drawings share.

Positions along the width are percentages, so that letters keep their size on a phone and on a wide
screen alike; all are cut from whole numbers, so that every Python writes the same digits. Colours
come from classes: a page with a strict policy allows no ``style`` attribute.
"""

from __future__ import annotations

import html
from functools import lru_cache

from ..categories import Category
from ..units import ratio

#: ``html.escape``; an answer is made of the same words again and again.
escape = lru_cache(maxsize=1024)(html.escape)


def share(part: int, whole: int) -> str:
    """A part of the width: ``share(1, 3) == "33.333%"``."""
    return f"{ratio(100 * part, whole, 3)}%"


def text(words: str, *, x: str, y: int, css: str, anchor: str = "start") -> str:
    """One line of text; ``anchor`` is the end of it that stands at ``x``."""
    return f'<text class="{css}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


@lru_cache(maxsize=64)
def swatch(category: Category, prefix: str) -> str:
    """A small square in the category's colour and pattern, for legends and tables."""
    square = 'width="12" height="12" rx="2"'
    pattern = (
        f'<rect {square} fill="url(#{prefix}-pattern-{category})"/>' if patterned(category) else ""
    )
    return (
        '<svg class="tm-swatch" width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">'
        f'<rect class="tm-{category}" {square}/>{pattern}</svg>'
    )


#: What is drawn over a category's colour, so that segments differ without it: the side of the
#: pattern's tile, and the strokes in it.
_PATTERNS: dict[Category, tuple[int, str]] = {
    Category.GRADIENTS: (6, "M-1 1L1 -1M0 6L6 0M5 7L7 5"),
    Category.OPTIMIZER: (5, "M2.5 2v1"),
    Category.MASTER: (6, "M3 0V6"),
    Category.RECOMPUTED: (5, "M-1 4L1 6M0 0L5 5M4 -1L6 1"),
    Category.LOGITS: (5, "M0 2.5H5"),
    Category.TEMPORARY: (6, "M-1 -1L7 7M-1 5L1 7M5 -1L7 1"),
}


def patterns(prefix: str) -> str:
    """The definitions that :func:`swatch` and the bar refer to: once a page for each ``prefix``."""
    tiles = "".join(
        f'<pattern id="{prefix}-pattern-{category}" width="{side}" height="{side}" '
        f'patternUnits="userSpaceOnUse"><path class="tm-pattern" d="{strokes}"/></pattern>'
        for category, (side, strokes) in _PATTERNS.items()
    )
    return (
        '<svg class="tm-patterns" width="0" height="0" aria-hidden="true" focusable="false">'
        f"<defs>{tiles}</defs></svg>"
    )


def patterned(category: Category) -> bool:
    """Whether a pattern is drawn over the category's colour."""
    return category in _PATTERNS
