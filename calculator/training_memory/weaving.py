"""What somebody who knows a run's sizes takes and frees in the middle of a recorded step.

A recording has notes of what happens to a weight and where. Here every layer is visited by itself,
and what is heard of its notes is put between its moves; layers in which the same happens are
repeats again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .events import Counter, Event, Node, Repeat
from .recorded import RecordedStrip, Sized
from .recording import Section
from .running import Running
from .walk import Shared

#: Asked at each note with what it is, the weight's name and the layer, from 0: the events that come
#: before the next move, and those after it.
Hear = Callable[[str, str, int], tuple[list[Event], list[Event]]]
#: How many of a section's moves come before some events.
Cut = tuple[int, tuple[Event, ...]]


def heard(made: Sized, phase: str, turn: int) -> Iterator[tuple[str, tuple[str, int]]]:
    """Every note of a phase of a micro-batch in order: what it is, and the weight."""
    for section in made.recording.sections:
        if (section.micro_batch, section.phase) == (turn, phase) and section.notes:
            layered = section.part[0] == "layer"
            turns = made.turns(section) if layered else [(section, 1)]
            for own, number in turns:
                for _, kind, weight in own.notes:
                    yield kind, (weight, number - 1 if layered else 0)


def _cuts(section: Section, layer: int, hear: Hear) -> tuple[Cut, ...]:
    found: dict[int, list[Event]] = {}
    for at, kind, weight in section.notes:
        before, after = hear(kind, weight, layer)
        for place, events in ((at, before), (at + 1, after)):
            if events:
                found.setdefault(place, []).extend(events)
    return tuple((at, tuple(events)) for at, events in found.items())


class Loom:
    """Cuts a recording's sections where something comes between, what is the same only once."""

    def __init__(self, made: Sized) -> None:
        self.made = made
        self._cut: dict[tuple[int, int, int], RecordedStrip] = {}
        self._layers: dict[tuple[int, tuple[Cut, ...]], Node] = {}

    def woven(self, phase: str, turn: int, hear: Hear) -> list[Node]:
        """One phase of a micro-batch with what is heard at its notes."""
        nodes: list[Node] = []
        for section in self.made.recording.sections:
            if (section.micro_batch, section.phase) != (turn, phase):
                continue
            if section.part[0] == "layer":
                nodes += self.layers(section, hear)
            elif section.notes:
                nodes += self.pieces(section, _cuts(section, 0, hear))
            else:
                nodes += self.made.nodes(section)
        return nodes

    def layers(self, section: Section, hear: Hear) -> Iterator[Node]:
        """Each of the layers that a section stands for."""
        step = 1 if section.phase == "forward" else -1
        before: tuple[Section, tuple[Cut, ...]] | None = None
        first = count = 0
        for own, number in self.made.turns(section):
            found = (own, _cuts(own, number - 1, hear))
            if before is not None and found[0] is before[0] and found[1] == before[1]:
                count += 1
                continue
            if before is not None:
                yield self._repeat(*before, count, first, step)
            before, first, count = found, number, 1
        if before is not None:
            yield self._repeat(*before, count, first, step)

    def _repeat(
        self, section: Section, cuts: tuple[Cut, ...], count: int, first: int, step: int
    ) -> Repeat:
        key = (id(section), cuts)
        child = self._layers.get(key)
        if child is None:
            pieces = self.pieces(section, cuts)
            label = self.made.strip(section).label
            child = pieces[0] if len(pieces) == 1 else Shared(label, tuple(pieces))
            self._layers[key] = child
        return Repeat(count=count, child=child, counters=(Counter("layer", first, step),))

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
        if key not in self._cut:
            moves = section.moves[begin:end]
            piece = Section(
                micro_batch=section.micro_batch,
                phase=section.phase,
                part=section.part,
                moves=moves,
                running=Running(moves, len(self.made.recording.facts)),
            )
            self._cut[key] = self.made.strip(piece)
        return self._cut[key]
