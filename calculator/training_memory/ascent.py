"""The way up to the peak: what is allocated and freed from an empty GPU to the highest point.

Repeats stay together ("forward, layers 1 to 32"), so that the way is as short for 800 layers as
for 8; only the turn of a repeat in which the peak comes is told event by event. A pipeline whose
stages hold several parts takes its micro-batches one by one: legs that differ in nothing but the
micro-batch are one leg too ("forward, layers 1 to 8 of micro-batches 1 to 4").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from .events import Counters, Event, Group, Node, Repeat, place
from .outline import further, together
from .records import dataclass
from .walk import walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A stretch of the way: what it is called, the bytes it adds or frees, the total after it."""

    label: str
    change_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A leg whose label still has its counters' names; ``counters`` has a value for each."""

    label: str
    counters: Mapping[str, int]
    change_bytes: int


#: The most stretches in a row that take turns with one another: a micro-batch's forward pass, its
#: logits, their end, and its backward pass through the one or two parts that its layers are in.
_TURNS = 6


def ascent(tree: Node) -> tuple[Leg, ...]:
    """The legs from the start of ``tree`` to its peak; the last total is the peak.

    Empty for a tree that never holds anything.
    """
    segment = walk(tree)
    if not segment.at:
        return ()
    legs = []
    total = 0
    for label, change in _joined(list(_up(tree, {}, 0, segment.peak))):
        total += change
        legs.append(Leg(label=label, change_bytes=change, total_bytes=total))
    return tuple(legs)


def _up(node: Node, counters: Counters, before: int, peak: int) -> Iterator[_Stretch]:
    """The way through ``node``, in which the peak comes, ``before`` bytes being held already."""
    if isinstance(node, Event):
        yield _stretch(node.label, counters, node.bytes)
    elif isinstance(node, Group):
        for child in node.children:
            if before + walk(child).peak == peak:
                yield from _up(child, counters, before, peak)
                return
            yield from _through(child, counters)
            before += sum(walk(child).remains)
    else:
        each = sum(walk(node.child).remains)
        # A repeat that rises is highest in its last turn, any other in its first (see walk).
        turn = node.count - 1 if each > 0 else 0
        if turn:
            yield _turns(node, turn, counters, turn * each)
        here = {**counters, **node.counted(turn)}
        yield from _up(node.child, here, before + turn * each, peak)


def _through(node: Node, counters: Counters) -> Iterator[_Stretch]:
    """A part that lies wholly before the peak: one stretch, or one for each of its repeats."""
    if isinstance(node, Group) and any(isinstance(child, Repeat) for child in node.children):
        for child in node.children:
            yield from _through(child, counters)
    elif isinstance(node, Repeat) and node.count == 1:
        yield from _through(node.child, {**counters, **node.counted(0)})
    elif isinstance(node, Repeat):
        each = sum(walk(node.child).remains)
        yield _turns(node, node.count, counters, node.count * each)
    else:
        yield _stretch(node.label, counters, sum(walk(node).remains))


def _stretch(label: str, counters: Counters, change: int) -> _Stretch:
    named = re.findall(r"{(\w+)}", label)
    return _Stretch(label, {name: int(_value(name, counters)) for name in named}, change)


def _value(name: str, counters: Counters) -> int:
    return counters[name] + counters.get(f"{name}+", 0)


def _turns(repeat: Repeat, turns: int, counters: Counters, change: int) -> _Stretch:
    """The first ``turns`` of a repeat under one label: "backward, layers 32 to 2"."""
    return _stretch(_together(repeat, turns, counters), {**counters, **repeat.counted(0)}, change)


def _together(repeat: Repeat, turns: int, counters: Counters) -> str:
    child = repeat.child
    if isinstance(child, Repeat):
        return f"{_together(child, child.count, counters)}, {turns:,} times"
    if turns == 1:
        return child.label
    first, last = (further(repeat.counted(turn), counters) for turn in (0, turns - 1))
    return together(child.label, first, last, turns)


def _joined(way: Sequence[_Stretch]) -> Iterator[tuple[str, int]]:
    """Labels and bytes, with stretches that take turns made one."""
    at = 0
    while at < len(way):
        # The last stretch is the peak's own, and stands by itself.
        size, times = max(
            ((size, _times(way[at:-1], size)) for size in range(1, _TURNS + 1)),
            key=lambda found: (found[0] * (found[1] - 1), -found[0]),
        )
        several = way[at : at + size * times]
        yield _label(several, size), sum(one.change_bytes for one in several)
        at += size * times


def _times(way: Sequence[_Stretch], size: int) -> int:
    """How often ``way``'s first ``size`` stretches come in a row, each time a micro-batch later."""
    first, times = way[:size], 1
    while True:
        again = way[times * size : (times + 1) * size]
        if [one.label for one in again] != [one.label for one in first]:
            return times
        if times == 1:
            moved = _moved(first, again)
            if not any(moved) or any(by not in (0, 1) for by in moved):
                return 1
        elif _moved(first, again) != [times * by for by in moved]:
            return times
        times += 1


def _moved(some: Sequence[_Stretch], later: Sequence[_Stretch]) -> list[int]:
    """How far each number of ``some`` is from the same number ``later``."""
    return [
        last.counters[name] - value
        for first, last in zip(some, later, strict=True)
        for name, value in first.counters.items()
    ]


def _label(several: Sequence[_Stretch], size: int) -> str:
    said = []
    for first, last in zip(several[:size], several[-size:], strict=True):
        stays = {name: at for name, at in first.counters.items() if last.counters[name] == at}
        label = place(first.label, stays)
        if len(stays) < len(first.counters):
            begin, end = (
                {name: at for name, at in one.counters.items() if name not in stays}
                for one in (first, last)
            )
            label = together(label, begin, end, len(several) // size)
        said.append(label)
    if size == 1:
        return said[0]
    return f"{said[0]} {'and' if size == 2 else '…'} {said[-1]}, in turn"
