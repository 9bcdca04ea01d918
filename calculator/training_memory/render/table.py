"""Text in columns and in paragraphs, for terminals and files."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]], align: str, *, gap: str = "  ") -> list[str]:
    """Rows as lines with their cells under one another.

    ``align`` has a character for each column: ``<`` sets it flush left, ``>`` flush right. A row
    may end early; nothing is cut, so a line is as wide as its cells need.
    """
    widths = [
        max((len(row[place]) for row in rows if place < len(row)), default=0)
        for place in range(len(align))
    ]
    lines = []
    for row in rows:
        cells = (
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=False)
        )
        lines.append(gap.join(cells).rstrip())
    return lines


def fitting(
    rows: Sequence[Sequence[str]], align: str, width: int, *, spare: Sequence[int]
) -> list[str]:
    """The same, leaving out whole columns, in the order of ``spare``, until lines fit ``width``."""
    shown = list(range(len(align)))
    for place in (None, *spare):
        if place is not None:
            shown.remove(place)
        cut = [[row[at] for at in shown] for row in rows]
        lines = columns(cut, "".join(align[at] for at in shown))
        if max(map(len, lines), default=0) <= width:
            break
    return lines


def wrapped(text: str, width: int, *, first: str = "", then: str | None = None) -> list[str]:
    """A paragraph in lines of at most ``width``; a word that is longer stands alone.

    The first line begins with ``first``, the others with ``then``, which is as many spaces where
    it is not given. (``textwrap`` would do it too, but takes a while to import.)
    """
    then = " " * len(first) if then is None else then
    lines, line = [], first
    empty = True
    for word in text.split():
        if not empty and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, empty = then, True
        line += word if empty else " " + word
        empty = False
    return [*lines, line]
