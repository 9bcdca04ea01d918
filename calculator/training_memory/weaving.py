"""What somebody who knows a run's sizes takes and frees in the middle of a recorded step.

A recording has notes of what happens to a weight and where. Here what is heard of a layer's notes
is put between its moves, one layer after another; where whoever listens is in a state in which it
was some layers before, what happened since is repeated instead of heard again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

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


class Listener:
    """Whoever is told of a recording's notes in the order of the step; layers count from 0."""

    def cuts(self, section: Section, layer: int) -> Cuts:
        """The events that come between a section's moves."""
        raise NotImplementedError

    def mark(self, layer: int, step: int) -> tuple[Hashable, object]:
        """Where it stands as a layer begins and the next is ``step`` further.

        A key, which is the same where all that follows is the same for as long as all layers are,
        and what :meth:`jump` is told.
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

    __slots__ = ("_bending", "_running", "cuts", "section")

    def __init__(self, section: Section, cuts: Cuts) -> None:
        self.section = section
        self.cuts = cuts
        self._running: tuple[Running, tuple[int, ...]] | None = None
        self._bending: Bending | None = None

    @property
    def is_one_phase(self) -> bool:
        """Whether its events are of the section's phase of the step."""
        own = phase_of(self.section)
        return all(event.phase is own for _, events in self.cuts for event in events)

    def parts(self) -> Iterator[tuple[slice, tuple[Event, ...]]]:
        """Its moves in stretches, and the events that follow each."""
        begin = 0
        for end, events in self.cuts:
            yield slice(begin, end), events
            begin = end
        yield slice(begin, len(self.section.moves)), ()

    def running(self, changes: int) -> tuple[Running, tuple[int, ...]]:
        """All its steps, and the events' bytes, which follow so many changes of the recording's."""
        if self._running is None:
            own = self.section.running
            places: list[int] = []
            codes: list[int] = []
            sizes: list[int] = []
            for part, events in self.parts():
                steps = own.steps(part)
                places += own.places[steps]
                codes += own.codes[steps]
                for event in events:
                    places.append(changes + len(sizes))
                    codes.append(2 * event.category.place + (event.bytes > 0))
                    sizes.append(event.bytes)
            self._running = Running.of_steps(places, codes), tuple(sizes)
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


def score(
    made: Sized, phase: str, turn: int, listener: Listener, *, jumps: bool = True
) -> Stretches:
    """One phase of a micro-batch with what is heard at its notes; no size of ``made`` is in it.

    Without ``jumps`` every layer is heard.
    """
    found: list[Stretch | Rounds] = []
    for section in sections(made, phase, turn):
        if section.part[0] in made.repeats:
            found += _repeated(made, section, listener, jumps=jumps)
        else:
            found.append(Stretch(woven=Woven(section, listener.cuts(section, 0))))
    return found


def sections(made: Sized, phase: str, turn: int) -> Iterator[Section]:
    """The sections of one phase of a micro-batch."""
    for section in made.recording.sections:
        if (section.micro_batch, section.phase) == (turn, phase):
            yield section


def _repeated(
    made: Sized, section: Section, listener: Listener, *, jumps: bool
) -> list[Stretch | Rounds]:
    """Each of the layers, or chunks of the loss, that a section stands for."""
    layered = section.part[0] == "layer"
    times, first, step = made.counted(section)
    # The last one may be another section.
    others = section.before_last or section
    alike = times if others is section else times - 1
    found: list[Stretch | Rounds] = []
    known: dict[Hashable, Woven] = {}
    #: Of the parts since the last jump: each as it is woven, and where the listener stood.
    heard: list[Woven] = []
    marks: dict[Hashable, tuple[int, object]] = {}
    begin = turn = 0
    while turn < times:
        if jumps and layered and turn < alike:
            key, now = listener.mark(first + turn * step - 1, step)
            before = marks.get(key)
            if before is not None:
                length = turn - before[0]
                if rounds := listener.jump(before[1], now, alike - turn):
                    found += _stretches(heard[:-length], first + begin * step, step)
                    at = first + before[0] * step
                    found += _rounds(heard[-length:], at, step, rounds + 1)
                    turn = begin = turn + rounds * length
                    heard, marks = [], {}
                    continue
            marks[key] = turn, now
        own = others if turn < alike else section
        cuts = listener.cuts(own, first + turn * step - 1 if layered else 0)
        # Events that are the same are one object.
        same = (own is section, *[(at, *map(id, events)) for at, events in cuts])
        woven = known.get(same)
        if woven is None:
            woven = known[same] = Woven(own, cuts)
        heard.append(woven)
        turn += 1
    return [*found, *_stretches(heard, first + begin * step, step)]


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
