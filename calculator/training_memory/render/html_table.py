"""The table under the picture: each kind of memory, its formula in the run's numbers, its tensors.

A row unfolds without a script: its heading is a ``<details>`` whose open state shows the row below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..categories import Category
from ..derivation import Entry, Line, derive
from ..estimate import Estimate
from ..formula import SYMBOLS, in_order
from ..implementations import Implementation
from ..run import Run
from ..units import show_bytes
from .answer import trained_with
from .mathml import mathml
from .sizes import Show, sizes
from .svg import escape, swatch
from .words import MEANING


def table(estimate: Estimate, *, binary: bool = False, prefix: str = "tm") -> str:
    """The whole table, of the fullest GPU, with the meaning of its symbols under it."""
    entries = derive(estimate.run, estimate.worst)
    together = sum(entry.total_bytes for entry in entries)
    show = sizes(together, binary=binary)
    rows = "".join(
        row
        for entry in entries
        for row in _rows(estimate.run, entry, show, binary=binary, prefix=prefix)
    )
    return (
        '<table class="tm-table" role="table"><caption>Where the bytes come from</caption>'
        '<thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">Memory</th>'
        '<th role="columnheader" scope="col" class="tm-number">At its largest</th>'
        '<th role="columnheader" scope="col" class="tm-number">At the peak</th>'
        '<th role="columnheader" scope="col">How it is counted</th></tr></thead>'
        f'<tbody role="rowgroup">{rows}</tbody>'
        '<tfoot role="rowgroup"><tr role="row"><th role="rowheader" scope="row">All together</th>'
        f"{_size(show(together))}{_size(show(estimate.worst.peak_bytes))}"
        f'<td role="cell" class="tm-how">{_when(together, estimate.worst.peak_bytes)}</td>'
        "</tr></tfoot></table>"
        f"{_symbols(entries)}"
    )


def _when(together: int, peak: int) -> str:
    if together == peak:
        return "At the peak everything is in memory at once."
    return "At the peak not everything is in memory at once."


def _rows(run: Run, entry: Entry, show: Show, *, binary: bool, prefix: str) -> Iterator[str]:
    category = entry.category
    name = f"{swatch(category, prefix)}<span>{category.heading}</span>"
    unfolds = bool(entry.lines)
    heading = f"<details><summary>{name}</summary></details>" if unfolds else name
    counted = _how(entry) if unfolds else escape(_why_no_rows(run, entry))
    yield (
        f'<tr role="row" class="tm-row{"" if unfolds else " tm-none"}">'
        f'<th role="rowheader" scope="row">{heading}</th>'
        f"{_size(show(entry.total_bytes))}{_size(show(entry.peak_bytes))}"
        f'<td role="cell" class="tm-how">{counted}</td></tr>'
    )
    yield (
        f'<tr role="row" class="tm-unfolded"><td role="cell" colspan="4">'
        f"<p>{escape(MEANING[category])}{escape(_repeats(run, entry, binary=binary))}</p>"
        f'<ul class="tm-tensors">{"".join(_line(line, binary=binary) for line in entry.lines)}</ul>'
        "</td></tr>"
        if unfolds
        else '<tr role="row" class="tm-unfolded"><td role="cell" colspan="4"></td></tr>'
    )


def _size(words: str) -> str:
    return f'<td role="cell" class="tm-number">{words}</td>'


def _how(entry: Entry) -> str:
    return (
        f'<span class="tm-formula">{mathml(entry.formula, factor=entry.factor)}</span> '
        f'<span class="tm-numbers">= {escape(entry.numbers_text)}</span>'
    )


def _why_no_rows(run: Run, entry: Entry) -> str:
    """What stands in place of a formula: that there is nothing, or that the walk alone knows it."""
    if entry.total_bytes:
        return "the most that is there at once, by the step's events"
    return _why_none(run, entry.category)


def _why_none(run: Run, category: Category) -> str:
    """Why a run has nothing of this kind."""
    if run.implementation is not Implementation.PAPER and category is Category.TEMPORARY:
        return "none"
    reasons = {
        Category.MASTER: f"{trained_with(run)} updates the weights themselves",
        Category.RECOMPUTED: "nothing is recomputed",
        Category.LOGITS: "on the last pipeline stage",
        Category.TEMPORARY: "the textbook counts none",
    }
    return reasons.get(category, "none")


def _repeats(run: Run, entry: Entry, *, binary: bool) -> str:
    """What the lines below are of, where they are a part of the whole."""
    each = show_bytes(sum(line.bytes for line in entry.lines), binary=binary)
    if entry.category is Category.ACTIVATIONS:
        held = f"{entry.times:,} are held" if entry.times > 1 else "one is held"
        return f" One layer keeps {each}, and {held} at once; these are one layer's tensors:"
    if entry.category is Category.RECOMPUTED:
        return f" One layer at a time makes {each}:"
    return ""


def _line(line: Line, *, binary: bool) -> str:
    """One tensor: name and size, its formula, why it is kept, where that is written."""
    return (
        f'<li><span class="tm-tensor">{escape(line.name)} '
        f"<small>{escape(line.group)}</small></span>"
        f'<span class="tm-number">{show_bytes(line.bytes, binary=binary)}</span>'
        f'<span class="tm-formula">{mathml(line.formula)}</span>'
        f'<span class="tm-why">{escape(line.why)} <cite>{escape(line.where)}</cite></span></li>'
    )


def _symbols(entries: Sequence[Entry]) -> str:
    """Each symbol that the formulas above use, with its meaning and value."""
    used: dict[str, int] = {}
    for entry in entries:
        for monomial in entry.formula.terms:
            for symbol, _ in monomial:
                used.setdefault(symbol, entry.values[symbol])
    items = "".join(
        f"<div><dt><math><mi>{symbol}</mi></math></dt>"
        f"<dd>{escape(SYMBOLS[symbol])} <b>{used[symbol]:,}</b></dd></div>"
        for symbol in sorted(used, key=in_order)
    )
    return f'<dl class="tm-symbols">{items}</dl>'
