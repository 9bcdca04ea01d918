"""The derivation of an estimate, as text and as plain values: each row, its formula and numbers."""

from __future__ import annotations

from ..ascent import ascent
from ..derivation import Entry, derive
from ..estimate import Estimate, RankEstimate
from ..formula import SYMBOLS
from ..units import show_bytes
from .table import columns, fitting, wrapped
from .terminal import Terminal
from .text import headline, left_out, ranks


def explain(estimate: Estimate, terminal: Terminal, *, binary: bool = False) -> str:
    """How the worst GPU's answer comes about, for a terminal."""
    worst = estimate.worst
    entries = derive(estimate.run, worst)
    writer = _Writer(terminal, binary=binary)
    blocks = [headline(estimate, terminal, binary=binary)]
    if len(estimate.ranks) > 1:
        blocks.append(ranks(estimate, terminal, binary=binary))
    blocks.append(writer.symbols(worst, entries))
    blocks += [writer.entry(entry) for entry in entries if entry.total_bytes]
    blocks.append(writer.way_up(worst))
    blocks.append(writer.alive(worst, entries))
    blocks.append(left_out(estimate, terminal))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def explain_json(estimate: Estimate) -> dict[str, object]:
    """The same as plain values: the estimate's own, with the derivation of its worst GPU."""
    worst = estimate.worst
    return {
        **estimate.to_json(),
        "derivation": [_entry_json(entry) for entry in derive(estimate.run, worst)],
        "ascent": [
            {"label": leg.label, "change_bytes": leg.change_bytes, "total_bytes": leg.total_bytes}
            for leg in ascent(worst.tree)
        ],
    }


def _entry_json(entry: Entry) -> dict[str, object]:
    return {
        "category": str(entry.category),
        "title": entry.category.heading,
        "total_bytes": entry.total_bytes,
        "peak_bytes": entry.peak_bytes,
        "formula": entry.symbols_text,
        "numbers": entry.numbers_text,
        "values": {symbol: entry.values[symbol] for symbol in _used(entry)},
        "times": entry.times,
        "rows": [
            {
                "name": line.name,
                "group": line.group,
                "formula": line.formula.text(),
                "numbers": line.formula.text(values=entry.values),
                "bytes": line.bytes,
                "why": line.why,
                "where": line.where,
            }
            for line in entry.lines
        ],
    }


def _used(entry: Entry) -> list[str]:
    """The symbols that an entry's formulas are written in, in the order of ``SYMBOLS``."""
    formulas = (entry.formula, *(line.formula for line in entry.lines))
    found = {symbol for formula in formulas for term in formula.terms for symbol, _ in term}
    return [symbol for symbol in SYMBOLS if symbol in found]


class _Writer:
    """Writes the parts of a derivation for one terminal, in one family of units."""

    def __init__(self, terminal: Terminal, *, binary: bool) -> None:
        self.terminal = terminal
        self.binary = binary
        self.told: set[str] = set()

    def size(self, size: int) -> str:
        """A size in the unit that suits it."""
        return show_bytes(size, binary=self.binary)

    def symbols(self, on: RankEstimate, entries: tuple[Entry, ...]) -> list[str]:
        """What the formulas' symbols stand for in this run."""
        values: dict[str, int] = {}
        for entry in entries:
            values |= {symbol: entry.values[symbol] for symbol in _used(entry)}
        # ZeRO pads N to divide evenly, category by category; here it is what the GPU has.
        values["N"] = on.rank.parameters
        rows = [
            [symbol, "=", f"{values[symbol]:,}", meaning]
            for symbol, meaning in SYMBOLS.items()
            if symbol in values
        ]
        title = f"In this run ({on.rank.label}):"
        return [self.terminal.strong(title), *(f"  {line}" for line in columns(rows, "<<><"))]

    def entry(self, entry: Entry) -> list[str]:
        """One category: its formula, the run's numbers, its bytes, and every row."""
        title = f"{entry.category.heading}: {self.size(entry.total_bytes)}"
        lines = [self.terminal.paint(title, entry.category)]
        lines += self.equation(entry.symbols_text, entry.numbers_text, entry.total_bytes)
        group = ""
        for line in entry.lines:
            if line.group != group:
                group = line.group
                lines.append(f"  {group}")
            numbers = line.formula.text(values=entry.values)
            said = f"{line.name}: {line.formula.text()} = {numbers} = {line.bytes:,} bytes"
            lines += self.terminal.prose(said, first="    ", then="        ")
            # A recomputed layer has the rows of a kept one: their reasons are given once.
            reason = f"{line.why} [{line.where}]"
            if reason not in self.told:
                self.told.add(reason)
                lines += self.terminal.prose(reason, first="      ")
        one = sum(line.bytes for line in entry.lines)
        if len(entry.lines) > 1 or entry.times > 1:
            added = f"sum of the rows: {one:,} bytes"
            if entry.times > 1:
                added += f", held {entry.times:,} times: {entry.times * one:,} bytes"
            lines += self.terminal.prose(added, first="  ")
        return lines

    def equation(self, symbols: str, numbers: str, size: int) -> list[str]:
        """A formula, the numbers in it, and what it comes to, on a line or on three."""
        result = f"{size:,} bytes"
        whole = f"  {symbols} = {numbers} = {result}"
        if len(whole) <= self.terminal.prose_width:
            return [whole]
        return [
            line
            for part in (symbols, f"= {numbers}", f"= {result}")
            for line in self.terminal.prose(part, first="  ", then="      ")
        ]

    def way_up(self, on: RankEstimate) -> list[str]:
        """The schedule from an empty GPU to the peak, a line a stretch."""
        rows: list[list[str]] = [["", "change", "held"]]
        room = self.terminal.width - 26  # beside two sizes and the gaps
        for leg in ascent(on.tree):
            sign = "+" if leg.change_bytes >= 0 else "−"
            change = f"{sign}{self.size(abs(leg.change_bytes))}"
            *above, label = wrapped(leg.label, room, then="  ")
            rows += [[line] for line in above]
            rows.append([label, change, self.size(leg.total_bytes)])
        lines = columns(rows, "<>>")
        title = self.terminal.strong("The way to the peak:")
        return [title, *(f"  {line}" for line in lines)]

    def alive(self, on: RankEstimate, entries: tuple[Entry, ...]) -> list[str]:
        """What is held at the peak, and what is not that will be or was."""
        held = [entry for entry in entries if entry.peak_bytes]
        rows = [
            [entry.category.heading, f"{entry.peak_bytes:,} bytes", self.size(entry.peak_bytes)]
            for entry in held
        ]
        rows.append(["together", f"{on.peak_bytes:,} bytes", self.size(on.peak_bytes)])
        title = f"Held at the peak, {on.peak_moment}:"
        lines = [self.terminal.strong(line) for line in self.terminal.prose(title)]
        table = fitting(rows, "<>>", self.terminal.width - 2, spare=(1,))
        lines += [f"  {line}" for line in table]
        elsewhere = sum(entry.total_bytes - entry.peak_bytes for entry in entries)
        if elsewhere:
            largest = self.size(on.peak_bytes + elsewhere)
            lines += self.terminal.prose(
                f"The largest of every category would come to {largest}; "
                f"{self.size(elsewhere)} of that are held at other times."
            )
        return lines
