"""The deck's page: its sections, between two marks, wrapped into slides."""

from __future__ import annotations

import re

_DECK = re.compile(
    r'<div class="deck-begins"></div>(?P<inside>.*?)<div class="deck-ends"></div>', re.DOTALL
)
# Only sections begin with a heading of the second level; what stands in them uses deeper ones.
_SECTION = re.compile(r"(?=<h2\b)")
_LIVE = re.compile(r'<section class="tm\b|<table\b')


def slides(page: str) -> str:
    """Make each section between the marks a slide, wide where it holds a calculator or a table.

    Markdown itself cannot: it closes a wrapper at the first piece of HTML that a macro writes.
    A page without the marks stays as it is. Raises ``ValueError`` for text before the first slide.
    """
    return _DECK.sub(_deck, page)


def _deck(found: re.Match[str]) -> str:
    before, *sections = _SECTION.split(found["inside"])
    if before.strip():
        raise ValueError(f"the deck has text before its first slide: {before.strip()[:60]!r}")
    made = "".join(_slide(section) for section in sections)
    return f'<div class="deck">{made}</div>'


def _slide(section: str) -> str:
    wide = " slide-wide" if _LIVE.search(section) else ""
    return f'<div class="slide{wide}">{section.strip()}</div>'
