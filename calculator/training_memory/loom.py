"""What comes between a recording's moves, with a run's sizes: parts of a tree, each made once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .bending import Bending
from .events import Counter, Event, Group, Node, Repeat
from .formula import Formula
from .recorded import RecordedStrip, Sized
from .recording import Section
from .running import Running, Sum
from .walk import Shared, Strip
from .weaving import Rounds, Stretch, Stretches, Woven


class WovenStrip(Strip):
    """A woven section with a run's sizes."""

    __slots__ = ("_changes", "_running", "_strip", "_walked", "woven")
    woven: Woven
    _strip: RecordedStrip
    _running: Running
    _changes: Sequence[int]
    _walked: Sum | None

    def __init__(self, strip: RecordedStrip, woven: Woven) -> None:
        own = strip.changes
        storages = len(own) // 2
        running, sizes = woven.running(storages)
        # A group is frozen; what this one is made of is set here, once.
        object.__setattr__(self, "woven", woven)
        object.__setattr__(self, "_strip", strip)
        object.__setattr__(self, "_running", running)
        object.__setattr__(self, "_changes", (*own[:storages], *sizes, *own[storages:]))
        # It stands in a tree many times over: it is summed up once.
        object.__setattr__(self, "_walked", None)

    @property
    def label(self) -> str:
        """Which part of the step it is."""
        return self._strip.label

    @property
    def children(self) -> tuple[Event, ...]:  # made when asked for
        """Its events in full."""
        moves = self._strip.children
        found: list[Event] = []
        for part, events in self.woven.parts():
            found += moves[part]
            found += events
        return tuple(found)

    def walked(self) -> Sum:
        """Its events summed up from their sizes alone."""
        if self._walked is None:
            found = self._running.sum(self._changes)
            object.__setattr__(self, "_walked", found)
            return found
        return self._walked

    def climbed(self) -> tuple[int, int]:
        """What remains after its events and their highest point."""
        if self._walked is None:
            return self._running.climb(self._changes)
        return sum(self._walked.remains), self._walked.peak

    def left(self) -> tuple[int, ...]:
        """What its events leave behind, by category."""
        return self.walked().remains

    def bends(self) -> tuple[Bending, Sequence[int]]:
        """Where its events bend a picture, found once, and their sizes."""
        return self.woven.bending(self._running), self._changes

    def taken(self) -> Iterator[tuple[Event, Formula | None, int]]:
        """What is taken anew: each event with its tensor's size, if it is one of the recording's.

        Last, what is held just before it.
        """
        now = 0
        for part, events in self.woven.parts():
            now = yield from self._strip.taken_in(part, now)
            for event in events:
                if event.bytes > 0:
                    yield event, None, now
                now += event.bytes

    def event_at(self, at: int) -> Event:
        """The event of one of its moves."""
        for part, events in self.woven.parts():
            length = part.stop - part.start
            if at < length:
                return self._strip.event_at(part.start + at)
            at -= length
            if at < len(events):
                return events[at]
            at -= len(events)
        raise IndexError(at)


class Loom:
    """Puts events between a recording's moves, and what is the same into the tree only once."""

    def __init__(self, made: Sized) -> None:
        self.made = made
        self._strips: dict[int, Group] = {}

    def woven(self, stretches: Stretches) -> list[Node]:
        """What a score says, with the run's sizes."""
        nodes: list[Node] = []
        for one in stretches:
            if isinstance(one, Rounds):
                nodes.append(self._rounds(one))
            elif one.woven.section.part[0] in self.made.repeats:
                nodes.append(self._repeat(one))
            elif one.woven.is_one_phase:
                nodes.append(self._strip(one.woven))
            else:
                nodes += self._pieces(one.woven)
        return nodes

    def _rounds(self, rounds: Rounds) -> Repeat:
        children = tuple(map(self._repeat, rounds.stretches))
        label = f"{abs(rounds.step)} layers that repeat"
        counters = (Counter("layer+", 0, rounds.step),)
        return Repeat(
            count=rounds.count, child=Group(label=label, children=children), counters=counters
        )

    def _repeat(self, one: Stretch) -> Repeat:
        section = one.woven.section
        step = 1 if section.phase == "forward" else -1
        counters = (Counter(section.part[0], one.first, step),)
        return Repeat(count=one.count, child=self._strip(one.woven), counters=counters)

    def _strip(self, woven: Woven) -> Group:
        found = self._strips.get(id(woven))
        if found is None:
            found = self._strips[id(woven)] = self._made(woven)
        return found

    def _made(self, woven: Woven) -> Group:
        plain = self.made.strip(woven.section)
        if not woven.cuts:
            return plain
        if woven.is_one_phase:
            return WovenStrip(plain, woven)
        return Shared(plain.label, tuple(self._pieces(woven)))

    def _pieces(self, woven: Woven) -> Iterable[Node]:
        """A section with events of another phase of the step between its moves."""
        for part, events in woven.parts():
            if part.stop > part.start:
                yield self._piece(woven.section, part)
            yield from events

    def _piece(self, section: Section, part: slice) -> RecordedStrip:
        key = (part.start, part.stop)
        piece = section.pieces.get(key)
        if piece is None:
            of = section.running
            piece = section.pieces[key] = Section(
                micro_batch=section.micro_batch,
                phase=section.phase,
                part=section.part,
                running=Running(of.places[part], of.codes[part]),
            )
        return self.made.strip(piece)
