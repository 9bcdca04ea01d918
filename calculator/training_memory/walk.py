"""The one walk: the highest point of a tree of events, without expanding its repeats.

Every subtree is summed up by what remains after it, its highest point and what that was made of
(:class:`Segment`). Segments compose: the highest point of A then B is A's, or B's raised by what A
left behind. A repeat of a segment rises or falls evenly, so its highest point is in its first or
its last run, and costs no more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add

from .bending import Bending
from .categories import CATEGORIES, Category
from .events import Counters, Event, Group, Node, Repeat, expand
from .formula import Formula
from .records import dataclass, field
from .running import Sum

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

    def walked(self) -> Sum:
        """Its events summed up, as :func:`walk` would sum them up."""
        raise NotImplementedError

    def event_at(self, at: int) -> Event:
        """The event at one of its moves, as ``walked().at`` tells them."""
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
    _walked: _Running | None

    def __init__(self, label: str, children: tuple[Node, ...]) -> None:
        super().__init__(label=label, children=children)
        object.__setattr__(self, "_climbed", None)
        object.__setattr__(self, "_left", None)
        object.__setattr__(self, "_walked", None)

    def walked(self) -> _Running:
        """As :func:`walk` sums it up."""
        if self._walked is None:
            running = _Running()
            for child in self.children:
                _walk_into(running, child)
            object.__setattr__(self, "_walked", running)
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
            object.__setattr__(self, "_left", _left_by(self))
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
    """The walk's state while it goes through a group: composes each child onto what came before.

    It is a sum, as :class:`.running.Sum` is. The peak comes after ``at``: an event, or a strip's
    move, which is put into words only if it is the highest of all.
    """

    __slots__ = ("at", "counters", "largest", "parts", "peak", "remains", "total")

    def __init__(self) -> None:
        self.remains = list(_NOTHING)
        self.total = 0
        self.peak = 0
        self.parts = _NOTHING
        self.largest = list(_NOTHING)
        self.at: Event | tuple[Strip, int] | None = None
        self.counters: Counters = {}

    def event(self, event: Event) -> None:
        place = event.category.place
        now = self.remains[place] = self.remains[place] + event.bytes
        if now > self.largest[place]:
            self.largest[place] = now
        self.total += event.bytes
        if self.total > self.peak:
            self.peak, self.parts = self.total, tuple(self.remains)
            self.at, self.counters = event, {}

    def part(self, node: Node, repeat: Repeat | None = None) -> None:
        """What is summed up by itself, or all runs of it."""
        one = node.walked() if isinstance(node, Strip | Shared) else _summed(node)
        # By loops of Python's own over the categories.
        first = last = self.remains
        turn = 0
        if repeat and repeat.count > 1:
            # Highest in the last run if it grows, else in the first.
            before = repeat.count - 1
            last = [*map(add, first, map(before.__mul__, one.remains))]
            self.largest = [*map(max, self.largest, map(add, last, one.largest))]
            turn = before if sum(one.remains) > 0 else 0
        highest = last if turn else first
        peak = sum(highest) + one.peak
        if peak > self.peak:
            self.peak, self.parts = peak, tuple(map(add, highest, one.parts))
            inner: Counters = {}
            if isinstance(one, _Running):
                self.at, inner = one.at, one.counters
            elif isinstance(node, Strip):
                self.at = node, one.at
            self.counters = {**repeat.counted(turn), **inner} if repeat else inner
        self.largest = [*map(max, self.largest, map(add, first, one.largest))]
        self.remains = [*map(add, last, one.remains)]
        self.total = sum(self.remains)

    def done(self) -> Segment:
        at = self.at
        return Segment(
            remains=tuple(self.remains),
            peak=self.peak,
            parts=self.parts,
            largest=tuple(self.largest),
            at=at[0].event_at(at[1]) if isinstance(at, tuple) else at,
            counters=self.counters,
        )


def walk(node: Node) -> Segment:
    """A tree summed up, in time that grows with the tree and not with its repeats."""
    return _summed(node).done()


def _summed(node: Node) -> _Running:
    running = _Running()
    _walk_into(running, node)
    return running


def _walk_into(running: _Running, node: Node) -> None:
    if isinstance(node, Event):
        running.event(node)
    elif isinstance(node, Strip | Shared):
        running.part(node)
    elif isinstance(node, Group):
        for child in node.children:
            _walk_into(running, child)
    elif node.count:
        running.part(node.child, node)


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
    if isinstance(node, Event):
        place = node.category.place
        return (*_NOTHING[:place], node.bytes, *_NOTHING[place + 1 :])
    if isinstance(node, Strip | Shared):
        return node.left()
    if isinstance(node, Repeat):
        return tuple(map(node.count.__mul__, left(node.child)))
    return _left_by(node)


def _left_by(group: Group) -> tuple[int, ...]:
    """What a group's children leave."""
    return tuple(map(sum, zip(_NOTHING, *map(left, group.children), strict=True)))


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
