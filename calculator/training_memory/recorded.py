"""A step built from a recording: recorded parts repeated, every size worked out for one run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from .autograd.memory import Facts, PartOf
from .bending import Bending
from .categories import CATEGORIES
from .events import Counter, Event, Group, Node, Repeat
from .formula import Formula
from .held import Held
from .layouts import rounded
from .recording import MOST, REPEATED, Recording, Section
from .running import Sum, signed
from .telling import moment, phase, tell
from .walk import Strip


def sizes_of(recording: Recording, values: Mapping[str, int]) -> list[int]:
    """Every storage's bytes for a run's numbers, as the allocator rounds them."""
    worked_out = [rounded(formula.evaluate(values)) for formula in recording.formulas]
    return [*map(worked_out.__getitem__, recording.formula_of)]


class RecordedStrip(Strip):
    """One section of a recording with a run's sizes."""

    __slots__ = ("_walked", "changes", "recording", "section", "several")
    recording: Recording
    section: Section
    #: Whether the step has several micro-batches, which the words must then tell apart.
    several: bool
    #: The sizes, as :func:`.running.signed` gives them.
    changes: Sequence[int]
    _walked: Sum | None

    def __init__(
        self,
        recording: Recording,
        section: Section,
        changes: Sequence[int],
        *,
        several: bool,
    ) -> None:
        # A group is frozen; what this one is made of is set here, once.
        object.__setattr__(self, "recording", recording)
        object.__setattr__(self, "section", section)
        object.__setattr__(self, "changes", changes)
        object.__setattr__(self, "several", several)
        object.__setattr__(self, "_walked", None)

    @property
    def label(self) -> str:  # worked out instead of kept
        """Which part of the step it is."""
        return moment(self.section, several=self.several)

    @property
    def children(self) -> tuple[Event, ...]:  # made when asked for
        """Its events in full."""
        words = self.section.words.get(self.several)
        if words is None:
            words = self.section.words[self.several] = tuple(self._words())
        change = self.changes
        return tuple(
            Event(
                phase=said.phase,
                category=said.category,
                bytes=change[at],
                label=said.label,
                why=said.why,
                moment=said.moment,
            )
            for at, said in words
        )

    def _words(self) -> Iterator[tuple[int, Event]]:
        """Every event, and where its size is among the changes; the words have no size in them."""
        for at, place in enumerate(self.section.running.places):
            yield place, self.event_at(at)

    def walked(self) -> Sum:
        """Its events summed up from their sizes alone."""
        found = self._walked
        if found is None:
            found = self.section.running.sum(self.changes)
            object.__setattr__(self, "_walked", found)
        return found

    def event_at(self, at: int) -> Event:
        """The event that one of its section's moves is."""
        running = self.section.running
        place, code = running.places[at], running.codes[at]
        leaving = place < 0
        facts = self.recording.facts[~place if leaving else place]
        told = tell(facts, leaving=leaving, moved=running.passes_on(at))
        where = moment(self.section, several=self.several)
        return Event(
            phase=phase(self.section),
            category=CATEGORIES[code >> 1],
            bytes=self.changes[place],
            label=f"{where}: {told.label}",
            why=told.why,
            moment=f"in {where}, at the {told.name}",
        )

    def climbed(self) -> tuple[int, int]:
        """What remains after its events and their highest point."""
        if self._walked is None:
            return self.section.running.climb(self.changes)
        return sum(self._walked.remains), self._walked.peak

    def left(self) -> tuple[int, ...]:
        """What its events leave behind, by category."""
        return self.walked().remains

    def bends(self) -> tuple[Bending, Sequence[int]]:
        """Where its events bend a picture, found once for the section, and their sizes."""
        found = self.section.bends
        if not found:
            running = self.section.running
            found.append(Bending(phase(self.section), running.codes, running.sizes))
        return found[0], self.changes

    def taken(self) -> Iterator[tuple[Event, Formula, int]]:
        """What is taken anew: each event with its tensor's size, and what is held just before it.

        The size is what it is before the allocator rounds it.
        """
        yield from self.taken_in(slice(None), 0)

    def taken_in(self, moves: slice, now: int) -> Generator[tuple[Event, Formula, int], None, int]:
        """:meth:`taken` of some moves, before which ``now`` is held; returns what is afterwards."""
        running = self.section.running
        for at in range(len(running.places))[moves]:
            place = running.places[at]
            if place >= 0 and not running.passes_on(at):
                yield self.event_at(at), self.recording.facts[place].bytes, now
            now += self.changes[place]
        return now


class RecordedStep(Group):
    """A whole step and what it was made from: what stays, and a recording with its sizes."""

    __slots__ = ("made", "rows")
    made: Sized
    rows: tuple[Held, ...]

    def __init__(self, children: tuple[Node, ...], *, made: Sized, rows: tuple[Held, ...]) -> None:
        super().__init__(label="one training step", children=children)
        object.__setattr__(self, "made", made)
        object.__setattr__(self, "rows", rows)


class Sized:
    """A recording with a run's sizes, as :func:`sizes_of` works them out.

    ``repeats`` counts what repeats by name ("layer", "chunk"); ``several`` says that the step has
    several micro-batches; ``first_layer`` is its first layer's number in the model, from 1.
    """

    __slots__ = (
        "_changes",
        "_outside",
        "first_layer",
        "recording",
        "repeats",
        "several",
        "sizes",
    )

    def __init__(
        self,
        *,
        recording: Recording,
        sizes: Sequence[int],
        repeats: Mapping[str, int],
        several: bool = False,
        first_layer: int = 1,
    ) -> None:
        self.recording = recording
        self.first_layer = first_layer
        self.sizes = sizes
        self.repeats = repeats
        self.several = several
        self._changes = signed(sizes)
        self._outside: Sequence[int] | None = None

    def _times(self, part: PartOf) -> int:
        """How many parts of the run a recorded part stands for."""
        name, index = part
        count = self.repeats.get(name, 1)
        return count - MOST + 1 if index == REPEATED and count > MOST else 1

    def taken_by(self, wanted: Callable[[Facts], bool]) -> int:
        """Bytes taken for ``wanted`` storages in one micro-batch, however long each is held."""
        taken = 0
        facts = self.recording.facts
        for section in self.recording.sections:
            if section.micro_batch == 0:
                times = self._times(section.part) if section.part[0] in self.repeats else 1
                for place in section.running.ends():
                    if place >= 0 and wanted(facts[place]):
                        taken += times * self.sizes[place]
        return taken

    def micro_batch(self, turn: int) -> tuple[Group, Group]:
        """One micro-batch's forward and backward pass; turn 0 writes gradients, 1 adds to them."""
        return self.phase("forward", turn), self.phase("backward", turn)

    def phases(self) -> Group:
        """All of a recording that has no micro-batches, in order."""
        nodes = [node for section in self.recording.sections for node in self.nodes(section)]
        return Group(label="the optimizer", children=tuple(nodes))

    def phase(self, name: str, turn: int = 0) -> Group:
        """One phase of the step."""
        nodes: list[Node] = []
        for section in self.recording.sections:
            if section.micro_batch == turn and section.phase == name:
                nodes += self.nodes(section)
        return Group(label=name, children=tuple(nodes))

    def nodes(self, section: Section) -> list[Node]:
        """All that a section stands for."""
        name = section.part[0]
        strip = self.strip(section)
        if name not in self.repeats:
            return [strip]
        times, first, step = self.counted(section)
        if times == 1:
            return [self._repeat(strip, name, 1, first, step)]
        if section.before_last is None:
            return [self._repeat(strip, name, times, first, step)]
        others = self.strip(section.before_last)
        last = first + step * (times - 1)
        return [
            self._repeat(others, name, times - 1, first, step),
            self._repeat(strip, name, 1, last, step),
        ]

    def counted(self, section: Section) -> tuple[int, int, int]:
        """How many parts a section stands for, the first one's number, from 1, and a step on."""
        name, index = section.part
        count, times = self.repeats[name], self._times(section.part)
        # Of the layers before this one in the run: none, the first, or all but the last.
        before = index if count <= MOST or index < MOST - 1 else count - 1
        if name == "layer":
            before += self.first_layer - 1
        elif name == "dense":
            before += self.first_layer - 1 - count
        forward = section.phase == "forward"
        return (times, before + 1, 1) if forward else (times, before + times, -1)

    def _repeat(self, strip: RecordedStrip, name: str, count: int, first: int, step: int) -> Repeat:
        return Repeat(count=count, child=strip, counters=(Counter(name, first, step),))

    def strip(self, section: Section) -> RecordedStrip:
        """One of what a section stands for."""
        outside = section.part[0] not in self.repeats
        changes = self._changes_outside() if outside else self._changes
        return RecordedStrip(self.recording, section, changes, several=self.several)

    def _changes_outside(self) -> Sequence[int]:
        """The sizes as the parts meet them that are not repeated themselves.

        What a repeated part leaves to be released elsewhere is there as many times as the part.
        """
        if self._outside is None:
            sizes = list(self.sizes)
            for storage in self.recording.leaving:
                sizes[storage] *= self._times(self.recording.facts[storage].part)
            self._outside = signed(sizes)
        return self._outside
