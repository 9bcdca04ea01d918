"""What somebody who knows a run's sizes takes and frees in the middle of a recorded step.

A recording has notes of what happens to a weight and where. Here what is heard of a layer's notes
is put between its moves, one layer after another; where whoever listens is in a state in which it
was some layers before, what happened since is repeated instead of heard again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, cycle, islice
from math import lcm
from operator import itemgetter

from .bending import Bending
from .events import Event
from .recorded import Sized
from .recording import Section
from .records import dataclass
from .running import Running
from .telling import phase as phase_of

#: How many of a section's moves come before some events.
Cut = tuple[int, tuple[Event, ...]]
Cuts = tuple[Cut, ...]
#: What somebody says at some of a section's notes: which one of them, and the events that come
#: before the move that follows it, and after that move.
Heard = tuple[tuple[int, Sequence[Event], Sequence[Event]], ...]
#: What one listener says of parts in a row, and how often all of it comes again.
_Round = tuple[Sequence[Heard], int]
#: What all listeners say of the parts that a section stands for.
Said = Sequence[tuple[Sequence[tuple[Heard, ...]], int]]


class Listener:
    """Whoever is told of a recording's notes in the order of the step; layers count from 0."""

    def hear(self, section: Section, layer: int) -> Heard:
        """What happens at a section's notes."""
        raise NotImplementedError

    def mark(self, section: Section, layer: int, step: int) -> tuple[Hashable, object] | None:
        """Where it stands as a layer of a section begins and the next is ``step`` further.

        A key, which is the same where all that follows is the same for as long as all layers are,
        and what :meth:`jump` is told; None where it wants to hear the layer.
        """
        raise NotImplementedError

    def jump(self, before: object, now: object, left: int) -> int:
        """Go on to the end of rounds that are like the last one, and say how many.

        A round are the layers between two marks of the same key, and ``left`` layers more are of
        the same section.
        """
        raise NotImplementedError


class Woven:
    """A section with events between its moves; no size of a run's own recording is in it."""

    __slots__ = ("_bending", "_running", "cuts", "is_one_phase", "section")

    def __init__(self, section: Section, heard: Sequence[Heard]) -> None:
        self.section = section
        self.cuts = _cuts(section, heard)
        own = phase_of(section)
        #: Whether its events are of the section's phase of the step.
        self.is_one_phase = all(event.phase is own for _, events in self.cuts for event in events)
        self._running: tuple[Running, tuple[int, ...]] | None = None
        self._bending: Bending | None = None

    def parts(self) -> Iterator[tuple[slice, tuple[Event, ...]]]:
        """Its moves in stretches, and the events that follow each."""
        begin = 0
        for end, events in self.cuts:
            yield slice(begin, end), events
            begin = end
        yield slice(begin, len(self.section.running.codes)), ()

    def running(self, storages: int) -> tuple[Running, tuple[int, ...]]:
        """All its moves, and the events' bytes: changes that follow those of so many storages.

        They come before what is taken away of storages, whose places are told from the end.
        """
        if self._running is None:
            own = self.section.running
            places: list[int] = []
            codes: list[int] = []
            sizes: list[int] = []
            for part, events in self.parts():
                places += own.places[part]
                codes += own.codes[part]
                for event in events:
                    places.append(storages + len(sizes))
                    codes.append(2 * event.category.place + (event.bytes > 0))
                    sizes.append(event.bytes)
            self._running = Running(places, tuple(codes)), tuple(sizes)
        return self._running

    def bending(self, running: Running) -> Bending:
        """Where its steps bend a picture."""
        if self._bending is None:
            self._bending = Bending(phase_of(self.section), running.codes, running.sizes)
        return self._bending


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """``count`` parts in a row in which the same happens; ``first`` is the first one's number."""

    woven: Woven
    count: int = 1
    first: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Stretches of layers that come ``count`` times, each time ``step`` layers further."""

    stretches: Sequence[Stretch]
    count: int
    step: int


#: A phase of a micro-batch with what is heard at its notes.
Stretches = Sequence[Stretch | Rounds]


def hear(
    made: Sized, phase: str, turn: int, listeners: Sequence[Listener], *, jumps: bool = True
) -> Sequence[Said]:
    """What is said of each section of one phase of a micro-batch; no move of it is looked at.

    No two ``listeners`` have anything to say at the same note. Without ``jumps`` every layer is
    heard.
    """
    found: list[Said] = []
    for section in sections(made, phase, turn):
        if section.part[0] in made.repeats:
            parts = _Parts(made, section)
            quick = jumps and parts.layered
            found.append([*_abreast([_heard(one, parts, jumps=quick) for one in listeners])])
        else:
            found.append([([tuple([one.hear(section, 0) for one in listeners])], 1)])
    return found


def weave(made: Sized, phase: str, turn: int, said: Sequence[Said]) -> Stretches:
    """The same phase with what was heard at its notes; no size of ``made`` is in it."""
    found: list[Stretch | Rounds] = []
    for section, of_section in zip(sections(made, phase, turn), said, strict=True):
        if section.part[0] in made.repeats:
            found += _repeated(_Parts(made, section), of_section)
        else:
            (((heard,), _),) = of_section
            found.append(Stretch(woven=Woven(section, heard)))
    return found


def sections(made: Sized, phase: str, turn: int) -> Iterator[Section]:
    """The sections of one phase of a micro-batch."""
    for section in made.recording.sections:
        if (section.micro_batch, section.phase) == (turn, phase):
            yield section


def _cuts(section: Section, heard: Sequence[Heard]) -> Cuts:
    """What is heard at a section's notes as events between its moves."""
    found: dict[int, list[Event]] = {}
    for note, before, after in sorted(chain.from_iterable(heard), key=itemgetter(0)):
        at = section.notes[note][0]
        if before:
            found.setdefault(at, []).extend(before)
        if after:
            found.setdefault(at + 1, []).extend(after)
    return tuple([(at, tuple(found[at])) for at in sorted(found)])


class _Parts:
    """The layers, or chunks of the loss, that a section stands for; they count from 0."""

    def __init__(self, made: Sized, section: Section) -> None:
        self.times, self.first, self.step = made.counted(section)
        self.last, self._others = section, section.before_last or section
        #: How many are the same section. The last one may be another.
        self.alike = self.times if self._others is section else self.times - 1
        self.layered = section.part[0] == "layer"

    def section(self, part: int) -> Section:
        """The section of one of them."""
        return self._others if part < self.alike else self.last

    def layer(self, part: int) -> int:
        """Which layer one of them is, from 0, if it is any."""
        return self.first + part * self.step - 1 if self.layered else 0


def _repeated(parts: _Parts, said: Said) -> list[Stretch | Rounds]:
    """All parts of a section with what was heard."""
    first, step = parts.first, parts.step
    known: dict[tuple[object, ...], Woven] = {}
    found: list[Stretch | Rounds] = []
    woven: list[Woven] = []
    begin = part = 0
    for heard, count in said:
        some: list[Woven] = []
        for at, of_part in enumerate(heard, part):
            section = parts.section(at)
            key = (section is parts.last, *map(id, of_part))
            one = known.get(key)
            if one is None:
                one = known[key] = Woven(section, of_part)
            some.append(one)
        if count == 1:
            woven += some
        else:
            found += _stretches(woven, first + begin * step, step)
            found += _rounds(some, first + part * step, step, count)
            begin, woven = part + count * len(some), []
        part += count * len(some)
    return [*found, *_stretches(woven, first + begin * step, step)]


def _heard(listener: Listener, parts: _Parts, *, jumps: bool) -> list[_Round]:
    """What one listener says of all parts in order."""
    found: list[_Round] = []
    known: dict[Hashable, Heard] = {}
    same: dict[int, tuple[Heard, Heard]] = {}
    #: Of the parts since the last jump: what was heard of each, and where the listener stood.
    heard: list[Heard] = []
    marks: dict[Hashable, tuple[int, object]] = {}
    part = 0
    while part < parts.times:
        mark = None
        if jumps and part < parts.alike:
            mark = listener.mark(parts.section(part), parts.layer(part), parts.step)
        if mark is not None:
            key, now = mark
            before = marks.get(key)
            if before is not None:
                length = part - before[0]
                if rounds := listener.jump(before[1], now, parts.alike - part):
                    found += [(heard[:-length], 1), (heard[-length:], rounds + 1)]
                    part += rounds * length
                    heard, marks = [], {}
                    continue
            marks[key] = part, now
        said = listener.hear(parts.section(part), parts.layer(part))
        if id(said) not in same:
            # Events that are the same are one object.
            events = tuple([(note, *map(id, one), 0, *map(id, more)) for note, one, more in said])
            same[id(said)] = said, known.setdefault(events, said)
        heard.append(same[id(said)][1])
        part += 1
    if not jumps:
        return [(heard, 1)]
    return [*found, *_again(heard, parts.alike - (part - len(heard)))]


def _again(heard: Sequence[Heard], alike: int) -> Iterator[_Round]:
    """What was heard of parts, with rounds where several of them come again; not so the last ones.

    The same things that are heard are one object.
    """
    ids = [*map(id, heard[:alike])]
    begin = at = 0
    last: dict[int, int] = {}
    while at < len(ids):
        first = last.get(ids[at], at)
        length = at - first
        count = 1
        # That one part comes again is no round; the same in a row is seen later.
        while length > 1 and ids[first:at] == ids[first + count * length : at + count * length]:
            count += 1
        last[ids[at]] = at
        at += 1
        if count > 1:
            yield from ((heard[begin:first], 1), (heard[first : first + length], count))
            begin = at = first + count * length
            last = {}
    yield heard[begin:], 1


def _abreast(
    sides: Sequence[Sequence[_Round]],
) -> Iterator[tuple[Sequence[tuple[Heard, ...]], int]]:
    """What several listeners say of the same parts, and how often all of it comes again."""
    waiting = [iter(side) for side in sides]
    #: Of each the round that it is in: what it says, from where it is on, and how many parts more.
    now: list[tuple[Sequence[Heard], int]] = [((), 0) for _ in sides]
    while True:
        for place, side in enumerate(waiting):
            while not now[place][1]:
                heard, count = next(side, (None, 0))
                if heard is None:
                    return
                now[place] = heard, count * len(heard)
        left = min(parts for _, parts in now)
        each = lcm(*[len(heard) for heard, _ in now])
        count = max(1, left // each)
        some = each if count > 1 else left
        yield [*islice(zip(*[cycle(heard) for heard, _ in now], strict=True), some)], count
        passed = count * some
        for place, (heard, parts) in enumerate(now):
            turned = passed % len(heard)
            now[place] = [*heard[turned:], *heard[:turned]], parts - passed


def _stretches(heard: Sequence[Woven], first: int, step: int) -> list[Stretch]:
    """Layers in a row, what is the same together."""
    found: list[Stretch] = []
    begin = 0
    for at in range(1, len(heard) + 1):
        if at == len(heard) or heard[at] is not heard[begin]:
            one = Stretch(woven=heard[begin], count=at - begin, first=first + begin * step)
            found.append(one)
            begin = at
    return found


def _rounds(heard: Sequence[Woven], first: int, step: int, count: int) -> list[Stretch | Rounds]:
    """Layers that come so many times in turn."""
    once = _stretches(heard, first, step)
    if len(once) > 1:
        return [Rounds(stretches=once, count=count, step=len(heard) * step)]
    return [Stretch(woven=heard[0], count=count * len(heard), first=first)]
