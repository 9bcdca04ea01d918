"""A step as a list that opens: passes, layers and events, each knowing its first and last frame.

Built from the same tree and the same points as the curve, so that a row of the list and a place on
the curve are the same moment. Turns that the points leave out have no rows; a repeat says how many
it has in all. Neither has a part of which the points leave out an end.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from .axis import repeats
from .events import Counters, Event, Group, Node, Repeat, count, place
from .records import dataclass
from .timeline import Point
from .walk import walk

#: The group of an event that stands in the step itself and in no part of it.
TOP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A part of a step.

    ``parent`` is the place of the row around it in the list of rows, or :data:`TOP`; ``first`` and
    ``last`` are places in the points. ``change_bytes`` is what the part leaves behind and
    ``events`` how many it has, played or not; a repeat has ``turns``, of which ``shown`` have rows
    (0 of 0 for what is no repeat). ``is_layer`` marks one turn of an innermost repeat.
    """

    label: str
    parent: int
    first: int
    last: int
    change_bytes: int
    events: int
    turns: int = 0
    shown: int = 0
    is_layer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The rows of a step in order, parents before children, and each point's innermost row."""

    rows: tuple[Row, ...]
    row_of: tuple[int, ...]


def outline(tree: Group, points: Sequence[Point]) -> Outline:
    """The list of a step whose ``points`` are :func:`.timeline.timeline`'s of the same tree."""
    return _Outliner(points).outline(tree)


class _Outliner:
    def __init__(self, points: Sequence[Point]) -> None:
        self.ats = [point.at for point in points]
        self.rows: list[Row | None] = []
        self.row_of = [TOP] * len(points)

    def outline(self, tree: Group) -> Outline:
        self._children(tree, 0, {}, TOP)
        # A row's place is taken before its children's; by now every place is filled.
        rows = tuple(row for row in self.rows if row is not None)
        return Outline(rows=rows, row_of=tuple(self.row_of))

    def _children(self, group: Group, at: int, counters: Counters, parent: int) -> None:
        for nodes in _joined(group.children):
            length = sum(count(node) for node in nodes)
            if self._frames(at, length):
                self._nodes(nodes, at, counters, parent)
            at += length

    def _nodes(self, nodes: Sequence[Node], at: int, counters: Counters, parent: int) -> None:
        """Add one child, or the repeats that read as one."""
        first = nodes[0]
        if isinstance(first, Event):
            self.row_of[bisect_left(self.ats, at)] = parent
        elif isinstance(first, Group):
            self._group(first, at, counters, parent)
        else:
            parts = [node for node in nodes if isinstance(node, Repeat) and count(node)]
            self._repeat(parts, at, counters, parent)

    def _group(
        self, group: Group, at: int, counters: Counters, parent: int, *, is_layer: bool = False
    ) -> None:
        if not self._whole(at, count(group)):
            self._children(group, at, counters, parent)
            return
        here = self._open()
        self._children(group, at, counters, here)
        span = self._frames(at, count(group))
        self.rows[here] = Row(
            label=place(group.label, counters),
            parent=parent,
            first=span[0],
            last=span[-1],
            change_bytes=sum(walk(group).remains),
            events=count(group),
            is_layer=is_layer,
        )

    def _repeat(self, parts: Sequence[Repeat], at: int, counters: Counters, parent: int) -> None:
        """Add repeats of the same thing in a row as one; a repeat of one turn is its child."""
        total = sum(part.count for part in parts)
        events = sum(count(part) for part in parts)
        is_row = total > 1 and self._whole(at, events)
        here = self._open() if is_row else parent
        span = self._frames(at, events)
        shown = 0
        for part in parts:
            length = count(part.child)
            for turn in self._turns(at, length, part.count):
                within = {**counters, **part.counted(turn)}
                self._turn(part.child, at + turn * length, within, here)
                shown += self._whole(at + turn * length, length)
            at += part.count * length
        if is_row:
            self.rows[here] = Row(
                label=_label(parts, total, counters),
                parent=parent,
                first=span[0],
                last=span[-1],
                change_bytes=sum(part.count * sum(walk(part.child).remains) for part in parts),
                events=events,
                turns=total,
                shown=shown,
            )

    def _turn(self, child: Node, at: int, counters: Counters, parent: int) -> None:
        if isinstance(child, Group):
            self._group(child, at, counters, parent, is_layer=not repeats(child))
        else:
            self._nodes([child], at, counters, parent)

    def _open(self) -> int:
        self.rows.append(None)
        return len(self.rows) - 1

    def _frames(self, at: int, length: int) -> range:
        """The points among the ``length`` events from ``at`` on."""
        return range(bisect_left(self.ats, at), bisect_left(self.ats, at + length))

    def _whole(self, at: int, length: int) -> bool:
        """Whether both ends of these events have points: of other parts there is no row."""
        span = self._frames(at, length)
        return bool(span) and self.ats[span[0]] == at and self.ats[span[-1]] == at + length - 1

    def _turns(self, at: int, length: int, turns: int) -> Iterator[int]:
        """The turns that have points, without looking at the others."""
        end = at + turns * length
        index = bisect_left(self.ats, at)
        while length and index < len(self.ats) and self.ats[index] < end:
            turn = (self.ats[index] - at) // length
            yield turn
            index = bisect_left(self.ats, at + (turn + 1) * length)


def _joined(children: Sequence[Node]) -> Iterator[list[Node]]:
    """The children one by one, but repeats of equally named things that follow each other together.

    The backward pass has two where the layers' gradients do not divide evenly.
    """
    joined: list[Node] = []
    for child in children:
        if joined and _named_alike(joined[-1], child):
            joined.append(child)
        else:
            if joined:
                yield joined
            joined = [child]
    if joined:
        yield joined


def _named_alike(one: Node, other: Node) -> bool:
    return (
        isinstance(one, Repeat)
        and isinstance(other, Repeat)
        and isinstance(one.child, Group)
        and isinstance(other.child, Group)
        and one.child.label == other.child.label
    )


def _label(parts: Sequence[Repeat], turns: int, counters: Counters) -> str:
    first = further(parts[0].counted(0), counters)
    last = further(parts[-1].counted(parts[-1].count - 1), counters)
    child = parts[0].child
    label = child.label if isinstance(child, Event | Group) else "the same"
    return place(together(label, first, last, turns), counters)


def further(own: Counters, around: Counters) -> Counters:
    """A repeat's counters, as far on as the repeats around it say."""
    return {name: value + around.get(f"{name}+", 0) for name, value in own.items()}


def together(label: str, first: Counters, last: Counters, turns: int) -> str:
    """One label for several turns: "backward, layers 32 to 2"."""
    said = label
    for name in first.keys() & last.keys():
        ends = f"{first[name]:,} to {last[name]:,}"
        said = re.sub(rf"(\w+) {{{name}}}", rf"\1s {ends}", said)
    return said.replace("batchs ", "batches ") if said != label else f"{label}, {turns:,} times"
