"""Two runs side by side, for a terminal."""

from __future__ import annotations

from ..diff import Difference
from ..units import ratio, show_bytes
from .difference import because, headline, largest, moments, names, parted, setting, side
from .table import columns, fitting
from .terminal import Terminal
from .text import unit_of


def difference_text(
    found: Difference, terminal: Terminal, *, binary: bool = False, events: bool = False
) -> str:
    """The whole comparison in lines that ``terminal`` can show, with every event on request."""
    blocks = [
        _heads(found, terminal, binary=binary),
        _settings(found, terminal, binary=binary),
        _totals(found, terminal, binary=binary),
        _partings(found, terminal, binary=binary),
        _events(found, terminal, binary=binary) if events else [],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _heads(found: Difference, terminal: Terminal, *, binary: bool) -> list[str]:
    lines = [terminal.strong(line) for line in terminal.prose(headline(found, binary=binary))]
    for name, said in zip(("1", "2"), names(found), strict=True):
        lines += terminal.prose(said, first=f"  {name}  ")
    return lines


def _settings(found: Difference, terminal: Terminal, *, binary: bool) -> list[str]:
    if not found.settings:
        return ["Nothing is set differently."]
    several = len(found.settings) > 1 and found.comparable
    rows = [["  ", "1", "2", *(("peak if 1 had it alone",) if several else ())]]
    for one in found.settings:
        name, left, right = setting(one)
        rows.append([f"  {name}", left, right])
        if several:
            alone = one.alone_bytes
            said = "cannot be alone" if alone is None else show_bytes(alone, binary=binary)
            rows[-1].append(said)
    shown = map(terminal.shown, columns(rows, "<" * len(rows[0])))
    return [terminal.strong("What is set differently"), *shown]


def _totals(found: Difference, terminal: Terminal, *, binary: bool) -> list[str]:
    left, right = found.left.worst.peak_bytes, found.right.worst.peak_bytes
    name, unit = unit_of(max(left, right), binary=binary)
    digits = 1 if unit > 1 else 0

    def change(before: int, after: int) -> str:
        said = ratio(after - before, unit, digits)
        return said if said.startswith("-") or after == before else f"+{said}"

    rows = [[f"at the peak, in {name}", "1", "2", "change"]]
    for category, _, _, one, other in found.totals:
        sizes = [ratio(size, unit, digits) for size in (one, other)]
        rows.append([f"  {category.heading}", *sizes, change(one, other)])
    sizes = [ratio(size, unit, digits) for size in (left, right)]
    rows.append(["  Together", *sizes, change(left, right)])
    head, *body, foot = fitting(rows, "<>>>", terminal.width, spare=(3,))
    lines = [terminal.strong(head), *body, terminal.strong(foot)]
    return [*map(terminal.shown, lines), *terminal.prose(moments(found), first="  ")]


def _partings(found: Difference, terminal: Terminal, *, binary: bool) -> list[str]:
    lines = [terminal.strong("Where they part")]
    for sentence in parted(found, binary=binary):
        lines += terminal.prose(sentence, first="  ")
    for one in largest(found):
        sizes = " → ".join(side(each, binary=binary) for each in (one.left, one.right))
        lines += terminal.prose(f"{one.label}: {sizes}", first="  - ")
        formula = next((each.formula for each in (one.right, one.left) if each), None)
        reason = because(one, found)
        said = f"{formula}; {reason}" if formula else reason
        if one.change_bytes:
            more = show_bytes(abs(one.change_bytes), binary=binary)
            said += f"; {more} {'more' if one.change_bytes > 0 else 'less'} over the step"
        lines += terminal.prose(said, first="    ")
    return lines


def _events(found: Difference, terminal: Terminal, *, binary: bool) -> list[str]:
    """Each event that differs, in the order of the steps, by the part of the step."""
    lines, phase = [], None
    for one in found.events:
        if one.phase is not phase:
            phase = one.phase
            lines.append(terminal.strong(f"Event by event: {phase}"))
        sizes = " → ".join(side(each, binary=binary) for each in (one.left, one.right))
        lines += terminal.prose(f"{one.label}: {sizes} ({because(one, found)})", first="  - ")
    return lines
