"""What somebody who knows a run's sizes takes and frees in the middle of a recorded step.

A recording has notes of what happens to a weight and where. Here every layer is visited by itself,
and what is heard of its notes is put between its moves; layers in which the same happens are
repeats again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .events import Counter, Event, Node, Repeat
from .recorded import RecordedStrip, Sized
from .recording import Section
from .records import dataclass
from .running import Running
from .walk import Segment, Shared

#: Asked at each note with what it is, the weight's name and the layer, from 0: the events that come
#: before the next move, and those after it.
Hear = Callable[[str, str, int], tuple[list[Event], list[Event]]]
#: How many of a section's moves come before some events.
Cut = tuple[int, tuple[Event, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """``count`` parts in a row in which the same happens; ``first`` is the first one's number."""

    section: Section
    cuts: tuple[Cut, ...]
    count: int = 1
    first: int = 1


def heard(made: Sized, phase: str, turn: int) -> Iterator[tuple[str, tuple[str, int]]]:
    """Every note of a phase of a micro-batch in order: what it is, and the weight."""
    for section in _sections(made, phase, turn):
        layered = section.part[0] == "layer"
        for own, number in made.turns(section) if layered else [(section, 1)]:
            for _, kind, weight in own.notes:
                yield kind, (weight, number - 1 if layered else 0)


def score(made: Sized, phase: str, turn: int, hear: Hear) -> list[Stretch]:
    """One phase of a micro-batch with what is heard at its notes; no size of ``made`` is in it."""
    stretches: list[Stretch] = []
    for section in _sections(made, phase, turn):
        if section.part[0] == "layer":
            stretches += _layers(made, section, hear)
        else:
            stretches.append(Stretch(section=section, cuts=_cuts(section, 0, hear)))
    return stretches


def _sections(made: Sized, phase: str, turn: int) -> Iterator[Section]:
    for section in made.recording.sections:
        if (section.micro_batch, section.phase) == (turn, phase):
            yield section


def _layers(made: Sized, section: Section, hear: Hear) -> Iterator[Stretch]:
    """Each of the layers that a section stands for."""
    before: tuple[Section, tuple[Cut, ...]] | None = None
    first = count = 0
    for own, number in made.turns(section):
        found = (own, _cuts(own, number - 1, hear))
        if before is not None and found[0] is before[0] and found[1] == before[1]:
            count += 1
            continue
        if before is not None:
            yield Stretch(section=before[0], cuts=before[1], count=count, first=first)
        before, first, count = found, number, 1
    if before is not None:
        yield Stretch(section=before[0], cuts=before[1], count=count, first=first)


def _cuts(section: Section, layer: int, hear: Hear) -> tuple[Cut, ...]:
    found: dict[int, list[Event]] = {}
    for at, kind, weight in section.notes:
        before, after = hear(kind, weight, layer)
        if before:
            found.setdefault(at, []).extend(before)
        if after:
            found.setdefault(at + 1, []).extend(after)
    return tuple([(at, tuple(events)) for at, events in found.items()])


class Loom:
    """Puts events between a recording's moves, and what is the same into the tree only once."""

    def __init__(self, made: Sized) -> None:
        self.made = made
        self._strips: dict[tuple[int, int, int], RecordedStrip] = {}
        self._layers: dict[tuple[int, tuple[Cut, ...]], Node] = {}

    def woven(self, stretches: Iterable[Stretch]) -> list[Node]:
        """What a score says, with the run's sizes."""
        nodes: list[Node] = []
        for one in stretches:
            if one.section.part[0] == "layer":
                nodes.append(self._repeat(one))
            elif one.section.notes:
                nodes += self.pieces(one.section, one.cuts)
            else:
                nodes += self.made.nodes(one.section)
        return nodes

    def _repeat(self, one: Stretch) -> Repeat:
        key = (id(one.section), one.cuts)
        child = self._layers.get(key)
        if child is None:
            pieces = self.pieces(one.section, one.cuts)
            label = self.made.strip(one.section).label
            child = pieces[0] if len(pieces) == 1 else Shared(label, tuple(pieces))
            self._layers[key] = child
        step = 1 if one.section.phase == "forward" else -1
        counters = (Counter("layer", one.first, step),)
        return Repeat(count=one.count, child=child, counters=counters)

    def pieces(self, section: Section, cuts: tuple[Cut, ...]) -> list[Node]:
        """A section with events between its moves."""
        if not cuts:
            return [self.made.strip(section)]
        nodes: list[Node] = []
        begin = 0
        for end, events in cuts:
            if end > begin:
                nodes.append(self._piece(section, begin, end))
            nodes += events
            begin = end
        if begin < len(section.moves):
            nodes.append(self._piece(section, begin, len(section.moves)))
        return nodes

    def _piece(self, section: Section, begin: int, end: int) -> RecordedStrip:
        key = (id(section), begin, end)
        if key not in self._strips:
            piece = section.pieces.get((begin, end))
            if piece is None:
                moves = section.moves[begin:end]
                piece = section.pieces[begin, end] = Section(
                    micro_batch=section.micro_batch,
                    phase=section.phase,
                    part=section.part,
                    moves=moves,
                    running=Running(moves, len(self.made.recording.facts)),
                )
            strip = self.made.strip(piece)
            self._strips[key] = _Piece(strip.recording, piece, strip.changes, several=strip.several)
        return self._strips[key]


class _Piece(RecordedStrip):
    """Stands in a tree many times over: it is summed up once."""

    __slots__ = ("_left", "_walked")
    _left: tuple[int, ...]
    _walked: Segment

    def walked(self) -> Segment:
        try:
            return self._walked
        except AttributeError:
            object.__setattr__(self, "_walked", super().walked())
            return self._walked

    def left(self) -> tuple[int, ...]:
        try:
            return self._left
        except AttributeError:
            object.__setattr__(self, "_left", super().left())
            return self._left
