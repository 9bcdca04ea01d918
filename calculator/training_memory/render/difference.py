"""What differs between two runs, chosen and put into words for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..diff import Difference, Setting
from ..parting import Parting, Side
from ..units import show_bytes
from .answer import described

#: So many kinds of tensor are told; the rest are counted.
MOST = 12


def largest(found: Difference) -> tuple[Parting, ...]:
    """The kinds of tensor that differ most, in the order of the step."""
    chosen = sorted(found.partings, key=lambda one: -one.weight)[:MOST]
    return tuple(one for one in found.partings if one in chosen)


def names(found: Difference) -> tuple[str, str]:
    """Both runs in a line each."""
    return described(found.left.run), described(found.right.run)


def headline(found: Difference, *, binary: bool = False) -> str:
    """How much higher or lower the second peak is."""
    left, right = found.left.worst, found.right.worst
    change = found.change_bytes
    sizes = [show_bytes(one.peak_bytes, binary=binary) for one in (left, right)]
    if not change:
        return f"Both need {sizes[0]}."
    word = "more" if change > 0 else "less"
    by = show_bytes(abs(change), binary=binary)
    return f"The first needs {sizes[0]}, the second {sizes[1]}: {by} {word}."


def moments(found: Difference) -> str:
    """When either peak comes."""
    left, right = found.left.worst.peak_moment, found.right.worst.peak_moment
    if left == right:
        return f"Both peaks come {left}."
    return f"The first peak comes {left}; the second {right}."


def setting(one: Setting) -> tuple[str, str, str]:
    """A field's name and both values as people write them."""
    return one.field.replace("_", " "), _value(one.left), _value(one.right)


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def because(one: Parting, found: Difference) -> str:
    """How an event or a kind of tensor differs, and the fields that make it."""
    if len(found.settings) < 2 or not one.fields:
        return one.reason  # there is but one field that it can be, or nobody asked
    names = [field.replace("_", " ") for field in one.fields]
    return f"{one.reason}; by {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: "recompute, loss and optimizer"."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def parted(found: Difference, *, binary: bool = False) -> Iterator[str]:
    """Sentences on how far the two steps are alike, and where they first part."""
    if not found.comparable:
        yield (
            "One is the textbook's step and the other a library's, so their tensors have no names "
            "in common; the totals above are what can be compared. Choose the same implementation "
            "for both to see where they part."
        )
        return
    if not found.events:
        yield f"All {found.events_alike:,} events of the two steps are alike."
        return
    first = found.events[0]
    sizes = " → ".join(side(one, binary=binary) for one in (first.left, first.right))
    yield (
        f"Walked side by side, {len(found.events):,} events differ and {found.events_alike:,} are "
        "alike; one that layers have in common counts once. They part first at: "
        f"{first.label}, {sizes} ({because(first, found)})."
    )
    if len(found.settings) == 1:
        one = setting(found.settings[0])
        yield f"Why: {one[0]} is {one[1]} in the first and {one[2]} in the second, nothing else."
    elif told := [
        f"{setting(one)[0]} ({one.events:,} events)" for one in found.settings if one.events
    ]:
        yield f"Why: changed one at a time, the fields that do it are {listed(told)}."
    if len(found.partings) > MOST:
        yield (
            f"Of {len(found.partings):,} kinds of tensor that differ, the {MOST} that do most over "
            "the step, in its order:"
        )


def side(one: Side | None, *, binary: bool = False) -> str:
    """A side's size and how often it is made."""
    if one is None:
        return "none"
    size = show_bytes(one.bytes, binary=binary)
    return f"{one.times:,} × {size}" if one.times > 1 else size
