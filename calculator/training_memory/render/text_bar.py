"""The stacked bar in characters: a stretch for each category, under it the peak and the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..categories import Category
from ..estimate import RankEstimate
from ..gpus import Gpu
from ..units import show_bytes
from .table import wrapped
from .terminal import GLYPHS, LETTERS, Terminal

#: A capacity that many times the bar's own length would leave a bar too short to read.
_FARTHEST = 6


def bar(
    on: RankEstimate, gpu: Gpu | None, terminal: Terminal, *, width: int, binary: bool = False
) -> list[str]:
    """The bar's lines, ``width`` columns wide: labels, the bar, and the marks under it.

    Each category is as long as the largest it gets over the step, so the bar ends beyond the
    peak: not everything is held at once.
    """
    totals = {category: size for category, size in on.totals.items() if size}
    together = sum(totals.values())
    if not together:
        return []
    capacity = gpu.memory_bytes if gpu else 0
    scale = max(together, capacity if capacity <= _FARTHEST * together else 0)
    lengths = apportioned(list(totals.values()), max(_cells(together, scale, width), len(totals)))
    pieces = dict(zip(totals, lengths, strict=True))
    peak = f"peak {show_bytes(on.peak_bytes, binary=binary)}"
    marks = [(_cells(on.peak_bytes, scale, width), "┆", peak)]
    if gpu and capacity <= scale:
        # A GPU's name says its size, but in GB.
        name = f"{gpu.name} ({show_bytes(capacity, binary=True)})" if binary else gpu.name
        marks.append((_cells(capacity, scale, width), "┃", name))
    lines = [
        _labels(totals, pieces, terminal, binary=binary),
        "".join(
            terminal.paint(GLYPHS[category] * size, category) for category, size in pieces.items()
        ),
        *_marks(marks, width),
    ]
    if gpu and capacity > scale:
        times = capacity // together
        held = show_bytes(capacity, binary=binary)
        said = f"{gpu.name}: {held}, {times:,} times the length of this bar"
        lines += wrapped(said, width, then="  ")
    return lines


def apportioned(sizes: Sequence[int], length: int) -> list[int]:
    """``length`` cells shared out in proportion to ``sizes``, at least one to each of them.

    The lengths sum to ``length``, which must be at least as many cells as there are sizes.
    """
    total = sum(sizes)
    cells = [max(1, size * length // total) for size in sizes]
    while sum(cells) > length:
        cells[cells.index(max(cells))] -= 1
    # What rounding down left over goes where most was cut off.
    short = [size * length / total - cell for size, cell in zip(sizes, cells, strict=True)]
    for place in sorted(range(len(sizes)), key=lambda place: -short[place])[: length - sum(cells)]:
        cells[place] += 1
    return cells


def _cells(size: int, scale: int, width: int) -> int:
    """How many cells a size takes, to the nearest."""
    return (2 * size * width + scale) // (2 * scale)


def _labels(
    totals: Mapping[Category, int],
    pieces: Mapping[Category, int],
    terminal: Terminal,
    *,
    binary: bool,
) -> str:
    """Over each stretch the longest label that it has room for, at the least its letter."""
    line = []
    for category, length in pieces.items():
        held = show_bytes(totals[category], binary=binary)
        number, letter = held.split(" ")[0], LETTERS[category]
        options = (f"{category.heading} {held}", f"{letter} {held}", f"{letter} {number}", letter)
        label = next((option for option in options if len(option) < length), letter)
        padding = length - len(label)
        line.append(" " * (padding // 2) + terminal.paint(label, category))
        line.append(" " * (padding - padding // 2))
    return "".join(line).rstrip()


def _marks(marks: list[tuple[int, str, str]], width: int) -> list[str]:
    """The marks from the bar down to their labels, the rightmost labelled first."""
    # A mark stands under the last cell that lies before its place.
    placed = [(max(cell - 1, 0), line, label) for cell, line, label in marks]
    placed.sort(key=lambda mark: -mark[0])
    lines = [_line({cell: line for cell, line, _ in placed})]
    for place, (cell, _, label) in enumerate(placed):
        rest = {other: line for other, line, _ in placed[place + 1 :] if other != cell}
        if cell + 2 + len(label) <= width:
            lines.append(_line({**rest, cell: f"└ {label}"}))
        else:
            start = max(cell - len(label) - 1, 0)
            covered = {at: line for at, line in rest.items() if at < start}
            lines.append(_line({**covered, start: f"{label} ┘"}))
    return lines


def _line(texts: Mapping[int, str]) -> str:
    """Texts each at its column; none reaches into the next."""
    line = ""
    for column in sorted(texts):
        line = line.ljust(column) + texts[column]
    return line
