"""A step's memory over its events, as points to draw: all, or a fair sample of a long step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import prod

from .categories import CATEGORIES
from .events import Counters, Event, Group, Node, Repeat, count
from .records import dataclass
from .walk import walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Memory just after one event.

    ``at`` is the event's place among all the events of the step, from 0, also where some before it
    are left out; ``parts`` the bytes by category, in ``CATEGORIES``' order; ``total`` their sum.
    """

    at: int
    event: Event
    counters: Counters
    parts: tuple[int, ...]
    total: int


#: Turns of each repeat that may be played; the first at which a step is short enough are.
_TURNS = (256, 128, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2)


def timeline(node: Node, most: int = 1000) -> tuple[Point, ...]:
    """Points of a step in order: every event if they are at most ``most``, else a sample.

    A sample plays only some turns of each repeat, evenly spaced and always the first and the last;
    since turns differ by a constant, straight lines between the points are right.
    """
    nests: dict[tuple[int, ...], int] = {}
    _nests(node, (), nests)
    turns = sampled_turns(nests, most)
    if count(node) <= most:
        # Enough for every repeat, also for one of nothing; and both ends of a sample make two.
        turns = max(2, count(node))
    player = _Player(turns)
    player.play(node, {})
    return tuple(_thinned(node, player.points, most))


_ENDS_AND_HIGHEST = ("first", "last", "highest")


def _thinned(node: Node, points: list[Point], most: int) -> list[Point]:
    """At most so many of the points, evenly spaced, the highest and both ends among them.

    Of a schedule whose every round is another, two turns of each repeat may still be too many.
    Half of what is shown are then both ends of the step's parts, the outer ones first: a part of
    which an end is missing could not say what it leaves behind.
    """
    if len(points) <= most or most < len(_ENDS_AND_HIGHEST):
        return points
    highest = max(range(len(points)), key=lambda place: points[place].total)
    kept = {highest}
    place_of = {point.at: place for place, point in enumerate(points)}
    for parts in _parts(node):
        room = (most // 2 - len(kept)) // 2
        if room < len(_ENDS_AND_HIGHEST):
            break
        for part in spaced(len(parts), room):
            kept |= {place_of[end] for end in parts[part]}
    kept |= {*spaced(len(points), most - len(kept))}
    return [points[place] for place in sorted(kept)]


def _parts(node: Node) -> Iterator[list[tuple[int, int]]]:
    """The first and last event of every group and repeat, level by level, of each both turns."""
    level = [(0, node)]
    while level:
        yield [(at, at + count(part) - 1) for at, part in level]
        inner: list[tuple[int, Node]] = []
        for at, part in level:
            if isinstance(part, Group):
                for child in part.children:
                    inner.append((at, child))
                    at += count(child)
            elif isinstance(part, Repeat):
                last = part.count - 1
                inner += [(at + turn * count(part.child), part.child) for turn in {0, last}]
        level = [(at, part) for at, part in inner if not isinstance(part, Event) and count(part)]


def _nests(node: Node, around: tuple[int, ...], found: dict[tuple[int, ...], int]) -> None:
    """Add to ``found`` how many events stand within the same repeats, told by their counts."""
    if isinstance(node, Event):
        found[around] = found.get(around, 0) + 1
    elif isinstance(node, Group):
        for child in node.children:
            if isinstance(child, Event):
                found[around] = found.get(around, 0) + 1
            else:
                _nests(child, around, found)
    else:
        _nests(node.child, (*around, node.count), found)


def sampled_turns(nests: Mapping[tuple[int, ...], int], most: int) -> int:
    """How many turns of each repeat to play, so that at most so many events are, if that can be.

    ``nests`` tells how many events stand within the same repeats.
    """
    enough = bisect_left(_TURNS, True, key=lambda turns: _sampled(nests, turns) <= most)
    return _TURNS[min(enough, len(_TURNS) - 1)]


def _sampled(nests: Mapping[tuple[int, ...], int], turns: int) -> int:
    """How many events are played with at most ``turns`` of each repeat."""
    return sum(
        events * prod(min(count, turns) for count in around) for around, events in nests.items()
    )


class _Player:
    """Plays a tree, jumping over the turns that are left out.

    Points are appended to a list: handed up through generators, a level each, they took twice as
    long, and this is half of what a page waits for at every change.
    """

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.at = 0
        self.parts = [0] * len(CATEGORIES)
        self.total = 0
        self.points: list[Point] = []

    def play(self, node: Node, counters: Counters) -> None:
        if isinstance(node, Event):
            self._event(node, counters)
        elif isinstance(node, Group):
            for child in node.children:
                if isinstance(child, Event):
                    self._event(child, counters)
                else:
                    self.play(child, counters)
        else:
            self._repeat(node, counters)

    def _event(self, event: Event, counters: Counters) -> None:
        self.total += event.bytes
        self.parts[event.category.place] += event.bytes
        self.points.append(
            Point(
                at=self.at,
                event=event,
                counters=counters,
                parts=tuple(self.parts),
                total=self.total,
            )
        )
        self.at += 1

    def _repeat(self, repeat: Repeat, counters: Counters) -> None:
        shown = spaced(repeat.count, self.turns)
        remains = walk(repeat.child).remains if len(shown) < repeat.count else ()
        length = count(repeat.child)
        last = -1
        for turn in shown:
            skipped = turn - last - 1
            if skipped:
                self.at += skipped * length
                for place, size in enumerate(remains):
                    self.parts[place] += skipped * size
                self.total += skipped * sum(remains)
            self.play(repeat.child, {**counters, **repeat.counted(turn)})
            last = turn


def spaced(total: int, most: int) -> list[int]:
    """At most ``most`` of 0 … total − 1, evenly spaced, both ends among them."""
    if total <= most:
        return list(range(total))
    return sorted({turn * (total - 1) // (most - 1) for turn in range(most)})
