"""The way up to the peak: what is allocated and freed from an empty GPU to the highest point.

Repeats stay together ("forward, layers 1 to 32"), so that the way is as short for 800 layers as
for 8; only the turn of a repeat in which the peak comes is told event by event.
"""

from __future__ import annotations

from collections.abc import Iterator

from .events import Counters, Event, Group, Node, Repeat, place
from .outline import together
from .records import dataclass
from .walk import walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A stretch of the way: what it is called, the bytes it adds or frees, the total after it."""

    label: str
    change_bytes: int
    total_bytes: int


def ascent(tree: Node) -> tuple[Leg, ...]:
    """The legs from the start of ``tree`` to its peak; the last total is the peak.

    Empty for a tree that never holds anything.
    """
    segment = walk(tree)
    return tuple(_up(tree, {}, 0, segment.peak)) if segment.at else ()


def _up(node: Node, counters: Counters, before: int, peak: int) -> Iterator[Leg]:
    """The legs through ``node``, in which the peak comes, ``before`` bytes being held already."""
    if isinstance(node, Event):
        yield _leg(place(node.label, counters), node.bytes, before)
    elif isinstance(node, Group):
        for child in node.children:
            if before + walk(child).peak == peak:
                yield from _up(child, counters, before, peak)
                return
            for leg in _through(child, counters, before):
                yield leg
                before = leg.total_bytes
    else:
        each = sum(walk(node.child).remains)
        # A repeat that rises is highest in its last turn, any other in its first (see walk).
        turn = node.count - 1 if each > 0 else 0
        if turn:
            yield _leg(_turns(node, turn, counters), turn * each, before)
        here = {**counters, **node.counted(turn)}
        yield from _up(node.child, here, before + turn * each, peak)


def _through(node: Node, counters: Counters, before: int) -> Iterator[Leg]:
    """The legs of a part that lies wholly before the peak: one, or one for each of its repeats."""
    if isinstance(node, Group) and any(isinstance(child, Repeat) for child in node.children):
        for child in node.children:
            for leg in _through(child, counters, before):
                yield leg
                before = leg.total_bytes
    elif isinstance(node, Repeat) and node.count == 1:
        yield from _through(node.child, {**counters, **node.counted(0)}, before)
    elif isinstance(node, Repeat):
        each = sum(walk(node.child).remains)
        yield _leg(_turns(node, node.count, counters), node.count * each, before)
    else:
        yield _leg(place(node.label, counters), sum(walk(node).remains), before)


def _leg(label: str, change: int, before: int) -> Leg:
    return Leg(label=label, change_bytes=change, total_bytes=before + change)


def _turns(repeat: Repeat, turns: int, counters: Counters) -> str:
    """The first ``turns`` of a repeat under one label: "backward, layers 32 to 2"."""
    child = repeat.child
    if isinstance(child, Repeat):
        return f"{_turns(child, child.count, counters)}, {turns:,} times"
    if turns == 1:
        return place(child.label, {**counters, **repeat.counted(0)})
    ends = repeat.counted(0), repeat.counted(turns - 1)
    return place(together(child.label, *ends, turns), counters)
