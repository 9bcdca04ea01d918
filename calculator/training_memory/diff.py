"""Two runs side by side: what is set differently, the totals, and tensor by tensor where they part.

The tensors of the two steps are put beside each other by the part of the step in which they are
made and by their name, in the order in which they come; what stands in a layer is one row for all
of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .categories import CATEGORIES, Category
from .estimate import Estimate
from .events import Phase, place
from .formula import Formula
from .implementations import Implementation
from .model import SHAPE_FIELDS
from .records import dataclass
from .run import DEFAULTS, Run
from .taken import Taken, takings


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A field that is not the same in both runs, with its values in JSON."""

    field: str
    left: object
    right: object

    def to_json(self) -> dict[str, object]:
        """The field as plain values."""
        return {"field": self.field, "left": self.left, "right": self.right}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A kind of tensor in one of two steps: how many bytes each, and how often one is made.

    ``formula`` is its size in symbols and ``numbers`` in the run's numbers, None where only the
    number is known; ``values`` are the numbers of the symbols in it. ``before_bytes`` are held when
    the first is made; ``kept`` says that it is kept for the backward pass.
    """

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
            "bytes": self.bytes,
            "times": self.times,
            "before_bytes": self.before_bytes,
            "formula": self.formula,
            "numbers": self.numbers,
            "kept": self.kept,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """A kind of tensor that the two steps do not make alike; a side is None where it makes none.

    ``why`` is what the tensor is for, and ``reason`` why the two differ, in the runs' own symbols.
    """

    phase: Phase
    category: Category
    label: str
    why: str
    left: Side | None
    right: Side | None
    reason: str

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
            "change_bytes": self.change_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two estimates beside each other, each by its fullest GPU.

    ``partings`` are in the order of the steps, ``alike`` counts the kinds of tensor that both make
    the same. Where the steps are told in different ways (``comparable`` is false: the textbook's
    rows beside a library's tensors) nothing is put beside anything.
    """

    left: Estimate
    right: Estimate
    settings: tuple[Setting, ...]
    partings: tuple[Parting, ...]
    alike: int
    comparable: bool

    @property
    def change_bytes(self) -> int:
        """How much higher the right run's peak is."""
        return self.right.worst.peak_bytes - self.left.worst.peak_bytes

    @property
    def totals(self) -> tuple[tuple[Category, int, int, int, int], ...]:
        """Each category that either run has: the largest it gets, and its part of the peaks."""
        left, right = self.left.worst, self.right.worst
        return tuple(
            (
                category,
                left.totals[category],
                right.totals[category],
                left.peak_parts[category],
                right.peak_parts[category],
            )
            for category in CATEGORIES
            if left.totals[category] or right.totals[category]
        )

    def to_json(self) -> dict[str, object]:
        """The difference as plain values."""
        return {
            "left": self.left.to_json(),
            "right": self.right.to_json(),
            "change_bytes": self.change_bytes,
            "settings": [setting.to_json() for setting in self.settings],
            "totals": [
                {
                    "category": str(category),
                    "left": {"largest": left, "at_peak": left_peak},
                    "right": {"largest": right, "at_peak": right_peak},
                }
                for category, left, right, left_peak, right_peak in self.totals
            ],
            "comparable": self.comparable,
            "alike": self.alike,
            "partings": [parting.to_json() for parting in self.partings],
        }


def diff(left: Estimate, right: Estimate) -> Difference:
    """The two runs side by side."""
    textbook = [one.run.implementation is Implementation.PAPER for one in (left, right)]
    comparable = textbook[0] == textbook[1]
    partings, alike = _partings(left, right) if comparable else ((), 0)
    return Difference(
        left=left,
        right=right,
        settings=tuple(_settings(left.run, right.run)),
        partings=partings,
        alike=alike,
        comparable=comparable,
    )


def _settings(left: Run, right: Run) -> Iterator[Setting]:
    before, after = left.to_json(), right.to_json()
    for field in DEFAULTS:
        lacks = field != "gpu" and None in (before[field], after[field])
        if lacks and left.implementation is not right.implementation:
            continue  # one implementation has no such field
        if field != "shape" and before[field] != after[field]:
            yield Setting(field=field, left=before[field], right=after[field])
    for field in SHAPE_FIELDS:
        one, other = getattr(left.model, field), getattr(right.model, field)
        if one != other:
            yield Setting(field=field, left=one, right=other)


#: What tells a kind of tensor: the part of the step, its label with its counters' names and without
#: whether it is kept, and which of several with the same label in that part.
_Key = tuple[Phase, str, int]
_MADE, _KEPT = " is made", " is made and kept"


def _sides(of: Estimate) -> dict[_Key, tuple[Side, Taken]]:
    """Every kind of tensor of a step, in order. Layers and micro-batches are together."""
    found: dict[_Key, tuple[Side, Taken]] = {}
    made = takings(of.run, of.worst)
    seen: dict[tuple[object, ...], int] = {}
    for one in made.tensors:
        event = one.event
        # The same tensor in the first, the middle and the last layers is one kind; the same label
        # twice within one of them is two.
        where = tuple(sorted(_ends(one).items()))
        label = event.label.removesuffix(_KEPT).removesuffix(_MADE)
        within = (event.phase, label, where)
        number = seen[within] = seen.get(within, -1) + 1
        key = (event.phase, label, number)
        known = found.get(key)
        if known is None:
            found[key] = (_side(one, made.values), one)
        else:
            side, first = known
            found[key] = (_more(side, one), first)
    return found


def _ends(one: Taken) -> dict[str, int]:
    counters: dict[str, int] = {}
    for repeat, _ in one.turns:
        counters |= repeat.counted(0)
    return counters


def _side(one: Taken, values: Mapping[str, int]) -> Side:
    formula = one.formula
    return Side(
        bytes=one.bytes,
        times=one.times,
        before_bytes=one.before,
        formula=None if formula is None else formula.text(),
        numbers=None if formula is None else formula.text(values=values),
        values={} if formula is None else {name: values[name] for name in _symbols(formula)},
        kept=one.event.label.endswith(_KEPT),
    )


def _symbols(formula: Formula) -> Iterator[str]:
    for monomial in formula.terms:
        for name, _ in monomial:
            yield name


def _more(side: Side, one: Taken) -> Side:
    from dataclasses import replace

    if one.bytes == side.bytes:
        return replace(side, times=side.times + one.times)
    # Of other sizes in other layers: all together as so many of the same.
    total = side.all_bytes + one.bytes * one.times
    times = side.times + one.times
    return replace(side, bytes=total // times, times=times, formula=None, numbers=None)


def _partings(left: Estimate, right: Estimate) -> tuple[tuple[Parting, ...], int]:
    ones, others = _sides(left), _sides(right)
    partings, alike = [], 0
    for key in _merged(list(ones), list(others)):
        one, other = ones.get(key), others.get(key)
        if one and other and _alike(one[0], other[0]):
            alike += 1
            continue
        shown = one or other
        assert shown is not None
        event = shown[1].event
        partings.append(
            Parting(
                phase=event.phase,
                category=event.category,
                label=_named(key[1]),
                why=event.why,
                left=one[0] if one else None,
                right=other[0] if other else None,
                reason=_reason(one[0] if one else None, other[0] if other else None),
            )
        )
    return tuple(partings), alike


def _alike(left: Side, right: Side) -> bool:
    return (left.bytes, left.times, left.kept) == (right.bytes, right.times, right.kept)


def _merged(left: list[_Key], right: list[_Key]) -> Iterator[_Key]:
    """Both lists' keys once, each in its own list's order, what is in one only where it comes."""
    known, done = set(left), set()
    place_of = {key: place for place, key in enumerate(left)}
    at = 0
    for key in right:
        if key in known:
            for other in left[at : place_of[key] + 1]:
                if other not in done:
                    done.add(other)
                    yield other
            at = max(at, place_of[key] + 1)
        elif key not in done:
            done.add(key)
            yield key
    for key in left[at:]:
        if key not in done:
            yield key


def _named(label: str) -> str:
    """A label with its counters' names: "the forward pass of each layer: gate is made"."""
    label = label.replace("the loss's chunk {chunk}", "each chunk of the loss")
    for name in ("layer", "chunk"):
        label = label.replace(f"{name} {{{name}}}'s", f"each {name}'s")
        label = label.replace(f"{name} {{{name}}}", f"each {name}")
    for name in ("forward", "backward"):
        label = label.replace(f"micro-batch {{{name}}}", "each micro-batch")
    return place(label, {})


def _reason(left: Side | None, right: Side | None) -> str:
    """Why two sides differ, as far as their formulas and how often they come tell."""
    if left is None or right is None:
        return "only the second run makes it" if left is None else "only the first run makes it"
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
    return ", ".join(said) or "its number differs"
