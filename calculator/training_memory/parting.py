"""Where two steps part: events that differ, and kinds of tensor, in words.

Tensors of the same name in all layers and micro-batches are one kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .abreast import Pair, Spot, plain
from .categories import Category
from .causes import Causes
from .estimate import Estimate
from .events import Counters, Phase, place
from .formula import Formula
from .outline import together
from .records import dataclass
from .slices import Work
from .taken import is_readable, symbols


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """An event in one of two steps, or a kind of tensor: how many bytes each, and how often.

    Less than 0 bytes are given back. ``formula`` is the size in symbols and ``numbers`` in the
    run's numbers, None where only the number is known; ``values`` are the numbers of the symbols in
    it. ``before_bytes`` are held just before the first; ``kept`` says that it is kept for the
    backward pass.
    """

    category: Category
    bytes: int
    times: int
    before_bytes: int
    formula: str | None
    numbers: str | None
    values: Mapping[str, int]
    kept: bool

    @property
    def all_bytes(self) -> int:
        """What all of them take together, though not all are there at once."""
        return self.bytes * self.times

    def to_json(self) -> dict[str, object]:
        """The side as plain values."""
        return {
            "category": str(self.category),
            "bytes": self.bytes,
            "times": self.times,
            "before_bytes": self.before_bytes,
            "formula": self.formula,
            "numbers": self.numbers,
            "kept": self.kept,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """An event, or a kind of tensor, that is not alike in two steps.

    A side is None where its step has none. ``why`` is what it is for, ``reason`` how the two
    differ, in the runs' own symbols, and ``fields`` are those that make them differ.
    """

    phase: Phase
    category: Category
    label: str
    why: str
    left: Side | None
    right: Side | None
    reason: str
    fields: tuple[str, ...]

    @property
    def change_bytes(self) -> int:
        """How much more the right one takes."""
        before = self.left.all_bytes if self.left else 0
        return (self.right.all_bytes if self.right else 0) - before

    @property
    def weight(self) -> int:
        """How much there is to it: what it takes more or less, or all that only one side keeps."""
        if self.left and self.right and self.left.kept is not self.right.kept:
            return max(self.left.all_bytes, self.right.all_bytes)
        return abs(self.change_bytes)

    def to_json(self) -> dict[str, object]:
        """The parting as plain values."""
        return {
            "phase": str(self.phase),
            "category": str(self.category),
            "label": self.label,
            "why": self.why,
            "left": self.left.to_json() if self.left else None,
            "right": self.right.to_json() if self.right else None,
            "reason": self.reason,
            "fields": list(self.fields),
            "change_bytes": self.change_bytes,
        }


class Told:
    """The pairs of two steps as what is told of them: events and kinds of tensor that differ.

    They are there once :meth:`steps` is through.
    """

    def __init__(
        self, left: Estimate, right: Estimate, pairs: Sequence[Pair], causes: Causes
    ) -> None:
        self.pairs = pairs
        self.fields = causes.fields  # none where they are not asked for
        self.symbols = tuple(symbols(one.run, one.worst) for one in (left, right)) if pairs else ()
        #: Of each recorded part, by the places of its events; a part lives as long as its pairs.
        self._formulas: dict[int, dict[int, Formula | None]] = {}
        self.causes = {pair.key: causes.of(pair) for pair in pairs if not pair.alike}
        self.events: tuple[Parting, ...] = ()
        self.alike = 0
        self.kinds: tuple[Parting, ...] = ()

    def steps(self) -> Work[None]:
        """Tell of every event and kind of tensor; may be left off after each."""
        events = []
        for pair in self.pairs:
            if not pair.alike:
                events.append(self._event(pair))
                yield
        self.events = tuple(events)
        kinds = []
        for kind in self._kinds():
            if kind:
                kinds.append(kind)
            yield
        self.kinds = tuple(kinds)

    def _event(self, pair: Pair) -> Parting:
        event = pair.shown.event
        sides = self._sides(pair)
        return Parting(
            phase=event.phase,
            category=event.category,
            label=_placed(pair.shown),
            why=event.why,
            left=sides[0],
            right=sides[1],
            reason=_reason(*sides, moved=pair.moved),
            fields=self.causes[pair.key],
        )

    def _sides(self, pair: Pair) -> tuple[Side | None, Side | None]:
        left, right = pair.left, pair.right
        return (self._side(left, 0) if left else None, self._side(right, 1) if right else None)

    def _side(self, spot: Spot, which: int) -> Side:
        values, formulas = self.symbols[which]
        formula = self._anew(spot) or formulas.get((spot.event.label, spot.event.bytes))
        if formula is not None and not is_readable(formula):
            formula = None
        return Side(
            category=spot.event.category,
            bytes=spot.event.bytes,
            times=spot.times,
            before_bytes=spot.before_bytes,
            formula=None if formula is None else formula.text(),
            numbers=None if formula is None else formula.text(values=values),
            values={} if formula is None else {name: values[name] for name in _symbols(formula)},
            kept=spot.kept,
        )

    def _anew(self, spot: Spot) -> Formula | None:
        """The size of a tensor that a recorded part takes anew, and does not only move."""
        return self._taken(spot).get(spot.at)

    def _taken(self, spot: Spot) -> Mapping[int, Formula | None]:
        """What the recorded part around a spot takes anew: each event's place, and its size."""
        if spot.strip is None:
            return {}
        known = self._formulas.get(id(spot.strip))
        if known is None:
            taken = iter(spot.strip.taken())
            anew = next(taken, None)
            known = self._formulas[id(spot.strip)] = {}
            for at, child in enumerate(spot.strip.children):
                if anew is not None and child == anew[0]:
                    known[at] = anew[1]
                    anew = next(taken, None)
        return known

    def _kinds(self) -> Iterator[Parting | None]:
        """The kinds of tensor over all layers and micro-batches; None for one that is alike."""
        groups: dict[tuple[Phase, str, object], list[Pair]] = {}
        for pair in self.pairs:
            event = pair.shown.event
            spot = pair.shown
            if event.bytes > 0 and (spot.strip is None or spot.at in self._taken(spot)):
                key = (event.phase, plain(event.label), pair.key[-1])
                groups.setdefault(key, []).append(pair)
        for (phase, label, _), pairs in groups.items():
            one, other = _summed(self._sides(pair) for pair in pairs)
            if one and other and _alike(one, other):
                self.alike += 1
                yield None
                continue
            named = {name for pair in pairs for name in self.causes.get(pair.key, ())}
            event = pairs[0].shown.event
            yield Parting(
                phase=phase,
                category=event.category,
                label=_named(label),
                why=event.why,
                left=one,
                right=other,
                reason=_reason(one, other),
                fields=tuple(name for name in self.fields if name in named),
            )


def _summed(sides: Iterator[tuple[Side | None, Side | None]]) -> tuple[Side | None, Side | None]:
    one: Side | None = None
    other: Side | None = None
    for left, right in sides:
        one, other = _more(one, left), _more(other, right)
    return one, other


def _symbols(formula: Formula) -> Iterator[str]:
    for monomial in formula.terms:
        for name, _ in monomial:
            yield name


def _more(side: Side | None, one: Side | None) -> Side | None:
    """A kind's side with more of it."""
    if side is None or one is None:
        return side or one
    if one.bytes == side.bytes:
        return replace(side, times=side.times + one.times)
    # Of other sizes in other layers: all together as so many of the same.
    total = side.all_bytes + one.all_bytes
    times = side.times + one.times
    return replace(side, bytes=total // times, times=times, formula=None, numbers=None)


def _alike(left: Side, right: Side) -> bool:
    return (left.bytes, left.times, left.kept) == (right.bytes, right.times, right.kept)


def _placed(spot: Spot) -> str:
    """An event's label with the layers and micro-batches that it stands for."""
    first, last = map(_counted, spot.turns)
    counter = "backward" if spot.event.phase is Phase.BACKWARD else "forward"
    label = spot.event.label
    if "micro-batch {" not in label and last.get(counter, 1) > 1:
        label += f" of micro-batch {{{counter}}}"  # the textbook's labels do not say it
    same = {name: value for name, value in first.items() if last[name] == value}
    label = place(label, same)
    return label if same == first else together(label, first, last, spot.times)


def _counted(counters: Counters) -> Counters:
    """Counters with what outer repeats add to inner ones, as :func:`.events.place` does."""
    return {
        name: value + counters.get(f"{name}+", 0)
        for name, value in counters.items()
        if not name.endswith("+")
    }


def _named(label: str) -> str:
    """A label with its counters' names: "the forward pass of each layer: gate is made"."""
    label = label.replace("the loss's chunk {chunk}", "each chunk of the loss")
    for name in ("layer", "chunk"):
        label = label.replace(f"{name} {{{name}}}'s", f"each {name}'s")
        label = label.replace(f"{name} {{{name}}}", f"each {name}")
    for name in ("forward", "backward", "weights"):
        label = label.replace(f"micro-batch {{{name}}}", "each micro-batch")
    return place(label, {})


def _reason(left: Side | None, right: Side | None, *, moved: bool = False) -> str:
    """How two sides differ, as far as their formulas and how often they come tell."""
    if left is None or right is None:
        which, side = ("second", right) if left is None else ("first", left)
        verb = "frees" if side is not None and side.bytes < 0 else "makes"
        return f"only the {which} run {verb} it"
    said = []
    if left.formula != right.formula and left.formula and right.formula:
        said.append(f"{left.formula} becomes {right.formula}")
    elif left.bytes != right.bytes:
        said += [
            f"{name} {left.values[name]:,} → {right.values[name]:,}"
            for name in left.values
            if right.values.get(name, left.values[name]) != left.values[name]
        ]
    if left.times != right.times:
        said.append(f"{left.times:,} → {right.times:,} times a step")
    if left.kept is not right.kept:
        which = "first" if left.kept else "second"
        said.append(f"kept for the backward pass in the {which} run only")
    if left.category is not right.category:
        said.append(
            f"{left.category.heading} in the first run, {right.category.heading} in the second"
        )
    if moved:
        said.append("it comes at another point of this part")
    return ", ".join(said) or "its size differs"
