"""The one walk: the highest point of a tree of events, without expanding its repeats.

Every subtree is summed up by what remains after it, its highest point and what that was made of
(:class:`Segment`). Segments compose: the highest point of A then B is A's, or B's raised by what A
left behind. A repeat of a segment rises or falls evenly, so its highest point is in its first or
its last run, and costs no more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .bending import Bending
from .categories import CATEGORIES, Category
from .events import Counters, Event, Group, Node, Repeat, expand
from .formula import Formula
from .records import dataclass, field

_NOTHING = (0,) * len(CATEGORIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A subtree, summed up. Everything is in bytes relative to where the subtree starts.

    ``remains`` by category at its end; ``peak`` the highest total reached (at least 0, the start),
    first reached after event ``at`` with ``counters``, when memory was made of ``parts``;
    ``largest`` the most that each category came to, each at its own time.
    """

    remains: tuple[int, ...] = _NOTHING
    peak: int = 0
    parts: tuple[int, ...] = _NOTHING
    largest: tuple[int, ...] = _NOTHING
    at: Event | None = None
    counters: Counters = field(default_factory=dict)


class Strip(Group):
    """A group that can sum itself up without making its events; they are made when asked for."""

    __slots__ = ()

    def walked(self) -> Segment:
        """Its events summed up, as :func:`walk` would sum them up."""
        raise NotImplementedError

    def climbed(self) -> tuple[int, int]:
        """What remains and the highest point alone, as :func:`climb` would find them."""
        raise NotImplementedError

    def left(self) -> tuple[int, ...]:
        """What remains by category alone, as :func:`left` would find it."""
        raise NotImplementedError

    def bends(self) -> tuple[Bending, Sequence[int]]:
        """Where its events bend a picture, all of one phase, and their sizes: :mod:`.bending`."""
        raise NotImplementedError

    def taken(self) -> Iterator[tuple[Event, Formula | None, int]]:
        """Its events that take memory: each with its formula, and what is held just before it."""
        now = 0
        for node in self.children:
            if isinstance(node, Event):
                if node.bytes > 0:
                    yield node, None, now
                now += node.bytes


class Shared(Group):
    """A group that stands in a tree many times over: it is summed up once."""

    __slots__ = ("_climbed", "_left", "_walked")
    _climbed: tuple[int, int] | None
    _left: tuple[int, ...] | None
    _walked: Segment | None

    def __init__(self, label: str, children: tuple[Node, ...]) -> None:
        super().__init__(label=label, children=children)
        object.__setattr__(self, "_climbed", None)
        object.__setattr__(self, "_left", None)
        object.__setattr__(self, "_walked", None)

    def walked(self) -> Segment:
        """As :func:`walk` sums it up."""
        if self._walked is None:
            object.__setattr__(self, "_walked", _of_children(self))
        assert self._walked
        return self._walked

    def climbed(self) -> tuple[int, int]:
        """As :func:`climb` finds it."""
        if self._climbed is None:
            object.__setattr__(self, "_climbed", _climb_children(self))
        assert self._climbed
        return self._climbed

    def left(self) -> tuple[int, ...]:
        """As :func:`left` finds it."""
        if self._left is None:
            sums = list(_NOTHING)
            for child in self.children:
                _leave(child, 1, sums)
            object.__setattr__(self, "_left", tuple(sums))
        assert self._left
        return self._left


def opened(node: Node) -> Node:
    """The same tree with the events of every strip made, once and for all."""
    if isinstance(node, Strip):
        return Group(label=node.label, children=node.children)
    if isinstance(node, Group):
        children = tuple(opened(child) for child in node.children)
        same = all(one is other for one, other in zip(children, node.children, strict=True))
        return node if same else Group(label=node.label, children=children)
    if isinstance(node, Repeat):
        child = opened(node.child)
        if child is node.child:
            return node
        return Repeat(count=node.count, child=child, counters=node.counters)
    return node


class _Running:
    """The walk's state while it goes through a group: composes each child onto what came before."""

    __slots__ = ("at", "counters", "largest", "now", "parts", "peak", "total")

    def __init__(self) -> None:
        self.now = list(_NOTHING)
        self.total = 0
        self.peak = 0
        self.parts = _NOTHING
        self.largest = list(_NOTHING)
        self.at: Event | None = None
        self.counters: Counters = {}

    def event(self, event: Event) -> None:
        place = event.category.place
        now = self.now[place] = self.now[place] + event.bytes
        self.largest[place] = max(self.largest[place], now)
        self.total += event.bytes
        if self.total > self.peak:
            self.peak, self.parts = self.total, tuple(self.now)
            self.at, self.counters = event, {}

    def segment(self, segment: Segment) -> None:
        if self.total + segment.peak > self.peak:
            self.peak = self.total + segment.peak
            self.parts = tuple(map(sum, zip(self.now, segment.parts, strict=True)))
            self.at, self.counters = segment.at, segment.counters
        now, largest = self.now, self.largest
        for place, (most, remains) in enumerate(zip(segment.largest, segment.remains, strict=True)):
            if most and now[place] + most > largest[place]:
                largest[place] = now[place] + most
            if remains:
                now[place] += remains
        self.total += sum(segment.remains)

    def repeated(self, one: Segment, repeat: Repeat) -> None:
        """All runs of a segment: highest in the last run if it grows, else in the first."""
        if repeat.count == 0:
            return
        before = repeat.count - 1
        grows = sum(one.remains)
        turn = before if grows > 0 else 0
        highest = self.total + turn * grows + one.peak
        now = self.now
        if highest > self.peak:
            self.peak = highest
            self.parts = tuple(
                held + turn * remains + part
                for held, remains, part in zip(now, one.remains, one.parts, strict=True)
            )
            self.at, self.counters = one.at, {**repeat.counted(turn), **one.counters}
        for place, (remains, most) in enumerate(zip(one.remains, one.largest, strict=True)):
            if remains or most:
                above = most + before * remains if remains > 0 else most
                self.largest[place] = max(self.largest[place], now[place] + above)
                now[place] += repeat.count * remains
        self.total += repeat.count * grows

    def done(self) -> Segment:
        return Segment(
            remains=tuple(self.now),
            peak=self.peak,
            parts=self.parts,
            largest=tuple(self.largest),
            at=self.at,
            counters=self.counters,
        )


def _walked(node: Node) -> Segment:
    return node.walked() if isinstance(node, Strip | Shared) else walk(node)


def walk(node: Node) -> Segment:
    """A tree summed up, in time that grows with the tree and not with its repeats."""
    running = _Running()
    _walk_into(running, node)
    return running.done()


def _walk_into(running: _Running, node: Node) -> None:
    if isinstance(node, Event):
        running.event(node)
    elif isinstance(node, Strip | Shared):
        running.segment(node.walked())
    elif isinstance(node, Group):
        for child in node.children:
            _walk_into(running, child)
    else:
        running.repeated(_walked(node.child), node)


def _of_children(group: Group) -> Segment:
    running = _Running()
    for child in group.children:
        _walk_into(running, child)
    return running.done()


def climb(node: Node) -> tuple[int, int]:
    """What remains after a tree and its highest point, in bytes: :func:`walk`'s totals alone.

    A search that tries thousands of runs wants nothing else of most of them.
    """
    if isinstance(node, Event):
        return node.bytes, max(0, node.bytes)
    if isinstance(node, Strip | Shared):
        return node.climbed()
    if isinstance(node, Repeat):
        if node.count == 0:
            return 0, 0
        remains, peak = climb(node.child)
        return node.count * remains, peak + max(0, (node.count - 1) * remains)
    return _climb_children(node)


def _climb_children(group: Group) -> tuple[int, int]:
    total = peak = 0
    for child in group.children:
        remains, above = climb(child)
        peak = max(peak, total + above)
        total += remains
    return total, peak


def left(node: Node) -> tuple[int, ...]:
    """What remains after a tree by category, in bytes: :func:`walk`'s ``remains`` alone."""
    sums = list(_NOTHING)
    _leave(node, 1, sums)
    return tuple(sums)


def _leave(node: Node, times: int, sums: list[int]) -> None:
    if isinstance(node, Event):
        sums[node.category.place] += times * node.bytes
    elif isinstance(node, Strip | Shared):
        for place, size in enumerate(node.left()):
            if size:
                sums[place] += times * size
    elif isinstance(node, Repeat):
        _leave(node.child, times * node.count, sums)
    else:
        for child in node.children:
            _leave(child, times, sums)


def walk_expanded(node: Node) -> Segment:
    """The same by playing every event: slow, obvious, and what :func:`walk` is held against."""
    running = _Running()
    for event, counters in expand(node):
        before = running.peak
        running.event(event)
        if running.peak > before:
            running.counters = counters
    return running.done()


def by_category(values: tuple[int, ...]) -> dict[Category, int]:
    """A segment's tuple as a mapping, in the order of :data:`CATEGORIES`."""
    return dict(zip(CATEGORIES, values, strict=True))
