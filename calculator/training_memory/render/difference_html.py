"""Two runs side by side on the page: bars, what is set differently, and where their steps part."""

from __future__ import annotations

from urllib.parse import urlencode

from ..controls import PIN, State, pin
from ..diff import Difference
from ..parting import Parting
from ..units import show_bytes
from .bar import drawing
from .difference import because, headline, largest, moments, names, parted, setting, side
from .pin import unpin
from .sizes import sizes
from .svg import escape, swatch


def difference_html(
    found: Difference, state: State, *, binary: bool = False, prefix: str = "tm"
) -> str:
    """The whole comparison of the pinned run (left) with that of ``state`` (right)."""
    pinned, now = names(found)
    bars = "".join(
        f'<figure class="tm-figure"><figcaption><b>{word}</b> {escape(words)}</figcaption>'
        f"{drawing(one, binary=binary, prefix=prefix, name=name, beside=other)}</figure>"
        for word, words, name, one, other in (
            ("Pinned", pinned, "pinned", found.left, found.right),
            ("Now", now, "now", found.right, found.left),
        )
    )
    return (
        '<p class="tm-heading">Compared with the pinned run</p>'
        f'<p class="tm-caption">{escape(_said(headline(found, binary=binary)))} '
        f"{escape(_said(moments(found)))}</p>"
        f"{bars}{_settings(found)}{_totals(found, binary=binary, prefix=prefix)}"
        f"{_partings(found, binary=binary)}"
        f'<div class="tm-actions">{unpin()}{_swap(state)}</div>'
    )


def _said(words: str) -> str:
    """The same words by what the page calls the two."""
    for before, after in (
        ("The first peak comes", "The pinned run's peak comes"),
        ("The first needs", "The pinned run needs"),
        ("the first run", "the pinned run"),
        ("the second run", "this run"),
        ("in the first and", "in the pinned run and"),
        ("the second", "this one"),
    ):
        words = words.replace(before, after)
    return words


def _swap(state: State) -> str:
    """A link to the pinned run, beside which the one shown now is pinned."""
    link = f"{state[PIN]}&{urlencode({PIN: pin(state)})}"
    return f'<a class="tm-quiet" href="#{escape(link)}">Swap the two</a>'


def _head(*names: str) -> str:
    first, *others = names
    cells = "".join(
        f'<th role="columnheader" scope="col" class="tm-number">{name}</th>' for name in others
    )
    return (
        '<thead role="rowgroup"><tr role="row">'
        f'<th role="columnheader" scope="col">{first}</th>{cells}</tr></thead>'
    )


def _row(name: str, *cells: str) -> str:
    rest = "".join(f'<td role="cell" class="tm-number">{cell}</td>' for cell in cells)
    return f'<tr role="row"><th role="rowheader" scope="row">{name}</th>{rest}</tr>'


def _settings(found: Difference) -> str:
    if not found.settings:
        return "<p>Nothing is set differently yet.</p>"
    rows = "".join(_row(*(escape(words) for words in setting(one))) for one in found.settings)
    return (
        '<table class="tm-compared tm-set" role="table"><caption>What is set differently'
        f'</caption>{_head("Field", "Pinned", "Now")}<tbody role="rowgroup">{rows}</tbody></table>'
    )


def _totals(found: Difference, *, binary: bool, prefix: str) -> str:
    left, right = found.left.worst.peak_bytes, found.right.worst.peak_bytes
    show = sizes(max(left, right), binary=binary)

    def change(before: int, after: int) -> str:
        if before == after:
            return "0"
        size = show(abs(after - before))
        # What is too little to be shown has no sign before its "<".
        return size if size.startswith("<") else f"{'+' if after > before else '−'}{size}"

    rows = "".join(
        _row(
            f"{swatch(category, prefix)}<span>{category.heading}</span>",
            show(one), show(other), change(one, other),
        )
        for category, _, _, one, other in found.totals
    )  # fmt: skip
    foot = _row("Together", show(left), show(right), change(left, right))
    return (
        '<table class="tm-compared" role="table"><caption>At the peak</caption>'
        f'{_head("Memory", "Pinned", "Now", "Change")}<tbody role="rowgroup">{rows}</tbody>'
        f'<tfoot role="rowgroup">{foot}</tfoot></table>'
    )


def _partings(found: Difference, *, binary: bool) -> str:
    said = "".join(f"<p>{escape(_said(sentence))}</p>" for sentence in parted(found, binary=binary))
    items = "".join(_parting(one, found, binary=binary) for one in largest(found))
    return (
        '<details class="tm-partings" data-key="partings"><summary>Where they part and '
        f'why</summary>{said}<ul class="tm-parted">{items}</ul></details>'
    )


def _parting(one: Parting, found: Difference, *, binary: bool) -> str:
    sides = " → ".join(side(each, binary=binary) for each in (one.left, one.right))
    formula = next((each.formula for each in (one.right, one.left) if each and each.formula), "")
    more = "more" if one.change_bytes > 0 else "less"
    over = f"{show_bytes(abs(one.change_bytes), binary=binary)} {more} over the step"
    reason = _said(because(one, found))
    reason = f"{reason}; {over}" if one.change_bytes else reason
    return (
        f'<li><span class="tm-tensor">{escape(one.label)}</span>'
        f'<span class="tm-number">{escape(sides)}</span>'
        f'<span class="tm-formula">{escape(formula or "")}</span>'
        f'<span class="tm-why">{escape(reason)}. {escape(one.why)}</span></li>'
    )
