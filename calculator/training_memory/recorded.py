"""A step built from a recording: the recorded layer repeated, every size worked out for one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .autograd.tape import Facts
from .categories import CATEGORIES
from .events import Counter, Event, Group, Node, Phase, Repeat
from .recording import MOST_LAYERS, Recording, Section
from .walk import Segment, Strip

#: PyTorch's allocator hands out memory in units of this many bytes (kMinBlockSize in
#: c10/cuda/CUDACachingAllocator.h).
UNIT_BYTES = 512


def rounded(size_bytes: int) -> int:
    """What the allocator takes for a tensor of that size."""
    return -(-size_bytes // UNIT_BYTES) * UNIT_BYTES


class RecordedStrip(Strip):
    """One section of a recording with a run's sizes."""

    __slots__ = ("facts", "of", "section", "sizes")
    section: Section
    facts: Sequence[Facts]
    sizes: Sequence[int]
    #: " of micro-batch {forward}", or nothing where there is one.
    of: str

    def __init__(
        self, section: Section, facts: Sequence[Facts], sizes: Sequence[int], of: str
    ) -> None:
        # A group is frozen; what this one is made of is set here, once.
        for name, value in (("section", section), ("facts", facts), ("sizes", sizes), ("of", of)):
            object.__setattr__(self, name, value)

    @property
    def label(self) -> str:
        """Which part of the step it is."""
        return _LABELS[self.section.key] + self.of

    @property
    def children(self) -> tuple[Event, ...]:
        """Its events in full."""
        events: list[Event] = []
        for index, (_, source, target) in enumerate(self.section.moves):
            if source >= 0:
                events.append(self._event(index, leaving=True))
            if target >= 0:
                events.append(self._event(index))
        return tuple(events)

    def walked(self) -> Segment:
        """Its events summed up from their sizes alone."""
        now = [0] * len(CATEGORIES)
        largest = list(now)
        parts = tuple(now)
        total = peak = 0
        at = -1
        sizes = self.sizes
        for index, (storage, source, target) in enumerate(self.section.moves):
            size = sizes[storage]
            if source >= 0:
                now[source] -= size
                total -= size
            if target >= 0:
                now[target] += size
                total += size
                if now[target] > largest[target]:
                    largest[target] = now[target]
                if total > peak:
                    peak, parts, at = total, tuple(now), index
        return Segment(
            remains=tuple(now),
            peak=peak,
            parts=parts,
            largest=tuple(largest),
            at=self._event(at) if at >= 0 else None,
        )

    def _event(self, index: int, *, leaving: bool = False) -> Event:
        storage, source, target = self.section.moves[index]
        facts = self.facts[storage]
        size = self.sizes[storage]
        section = _LABELS[self.section.key]
        moved = source >= 0 and target >= 0
        if leaving:
            verb, why = ("is complete", _COMPLETE) if moved else ("is freed", _FREED)
        else:
            verb, why = ("is kept for the optimizer", _COMPLETE) if moved else _taken(facts)
        return Event(
            phase=_PHASES[self.section.phase, self.section.name == "loss"],
            category=CATEGORIES[source if leaving else target],
            bytes=-size if leaving else size,
            label=f"{section}: {facts.name} {verb}",
            why=why,
            moment=f"in {section}{self.of}, at the {facts.name}",
        )


_FREED = "Nothing reads it any more."
_COMPLETE = "The whole gradient of a weight is there; it waits for the optimizer."
_PASSING = "Only what comes next reads it."


def _taken(facts: Facts) -> tuple[str, str]:
    if not facts.saved_by:
        return "is made", _PASSING
    return "is made and kept", " ".join(dict.fromkeys(why for _, why in facts.saved_by))


_LABELS = {
    ("forward", "inputs"): "the inputs",
    ("forward", "embedding"): "the embedding",
    ("forward", "layer"): "the forward pass of layer {layer}",
    ("forward", "norm"): "the final norm",
    ("forward", "head"): "the head's forward pass",
    ("forward", "loss"): "the loss",
    ("backward", "loss"): "the loss's backward pass",
    ("backward", "head"): "the head's backward pass",
    ("backward", "norm"): "the final norm's backward pass",
    ("backward", "layer"): "the backward pass of layer {layer}",
    ("backward", "embedding"): "the embedding's backward pass",
}
_PHASES = {
    ("forward", False): Phase.FORWARD,
    ("forward", True): Phase.LOSS,
    ("backward", False): Phase.BACKWARD,
    ("backward", True): Phase.BACKWARD,
}


def sizes_of(recording: Recording, values: Mapping[str, int]) -> list[int]:
    """Every storage's bytes for a run's numbers, as the allocator rounds them."""
    worked_out = [rounded(formula.evaluate(values)) for formula in recording.formulas]
    return [worked_out[place] for place in recording.formula_of]


def micro_batch(
    recording: Recording, sizes: Sequence[int], turn: int, layers: int, *, several: bool
) -> tuple[Group, Group]:
    """One micro-batch's forward and backward pass; ``turn`` 0 writes gradients, 1 adds to them.

    Of the layers recorded (:data:`.recording.MOST_LAYERS`) the first and the last stand for
    themselves, since what all layers share comes and goes with them; the middle one is repeated.
    """
    passes: dict[str, list[Node]] = {"forward": [], "backward": []}
    # What the repeated layer leaves to be released outside of the layers (autocast's copies of
    # weights) is there as many times as the layer.
    times = layers - 2 if layers > MOST_LAYERS else 1
    all_layers = [
        size * times if facts.layer == 1 else size
        for size, facts in zip(sizes, recording.facts, strict=True)
    ]
    place = 0
    for section in recording.sections:
        if section.micro_batch != turn:
            continue
        of = f" of micro-batch {{{section.phase}}}" if several else ""
        nodes = passes[section.phase]
        if section.name != "layer":
            nodes.append(RecordedStrip(section, recording.facts, all_layers, of))
            place = 0
            continue
        strip = RecordedStrip(section, recording.facts, sizes, of)
        count = times if place == 1 else 1
        done = 0 if place == 0 else layers - 1 if layers > MOST_LAYERS and place == 2 else place
        first, step = (1 + done, 1) if section.phase == "forward" else (layers - done, -1)
        nodes.append(Repeat(count=count, child=strip, counters=(Counter("layer", first, step),)))
        place += 1
    return (
        Group(label="forward", children=tuple(passes["forward"])),
        Group(label="backward", children=tuple(passes["backward"])),
    )
