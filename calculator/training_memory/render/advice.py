"""What to change so that a run fits, as a list with a button for each change."""

from __future__ import annotations

from collections.abc import Sequence

from ..controls import address
from ..estimate import Estimate
from ..fit import Change, changes_in_steps
from ..slices import Work, finished
from ..units import show_bytes
from . import cost_model, costs, spelled
from .svg import escape

#: How many changes stand open; the others fold.
_OPEN = 5


def advice(estimate: Estimate, *, binary: bool = False, usable: bool = True) -> str:
    """Every single change that saves memory, best first; nothing for a run that fits.

    The buttons can be used at once if ``usable``, else when a script takes them over.
    """
    return finished(advice_in_steps(estimate, binary=binary, usable=usable))


def advice_in_steps(estimate: Estimate, *, binary: bool = False, usable: bool = True) -> Work[str]:
    """:func:`advice`, which may be left off after every change that is tried."""
    room = estimate.room_bytes
    if room is None or room >= 0:
        return ""
    found = yield from changes_in_steps(estimate)
    if not found:
        return ""
    fitting = sum(change.fits is True for change in found)
    words = {
        0: "No single change is enough; the ones that save most come first.",
        1: "One change alone is enough.",
    }.get(fitting, f"{fitting} changes are each enough alone.")
    rest = found[_OPEN:]
    more = (
        f'<details data-key="advice"><summary>{len(rest)} more</summary>'
        f"{_list(rest, binary=binary, usable=usable)}</details>"
        if rest
        else ""
    )
    return (
        f'<p class="tm-heading">What would make it fit</p><p class="tm-caption">{words}</p>'
        f"{_list(found[:_OPEN], binary=binary, usable=usable)}{more}{cost_model.fold(estimate.run)}"
    )


def _list(found: Sequence[Change], *, binary: bool, usable: bool) -> str:
    items = "".join(_item(change, binary=binary, usable=usable) for change in found)
    return f'<ul class="tm-changes">{items}</ul>'


def _item(change: Change, *, binary: bool, usable: bool) -> str:
    saved = show_bytes(change.saved_bytes, binary=binary)
    left = show_bytes(change.peak_bytes, binary=binary)
    fits = ' <b class="tm-fits">fits</b>' if change.fits else ""
    if change.tight:
        fits += ", tight"
    use = f'aria-label="Apply: {escape(change.title)}"{"" if usable else " disabled"}'
    return (
        f'<li><span class="tm-change">{escape(change.title)} '
        f"<small>{escape(costs.of_change(change, binary=binary))}</small></span>"
        f'<span class="tm-number">saves {saved}</span>'
        f'<span class="tm-number">needs {left}{fits}</span>'
        f'<button type="button" class="tm-quiet" data-set="{escape(_address(change))}" '
        f"{use}>Apply</button>"
        f"{spelled.fold(change.fields, change.run, change.title)}</li>"
    )


def _address(change: Change) -> str:
    """The fields to set, as a page's address has them: what is left to the implementation is ""."""
    return address({name: "" if value is None else value for name, value in change.fields.items()})
