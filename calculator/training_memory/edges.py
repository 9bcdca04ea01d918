"""A step as its picture draws it: the stacked edges of memory, without playing it event by event.

A stretch of events is worked out once (:mod:`.bending`), as finely as can be told apart, and moved
to wherever it repeats. Of a long step only some turns of each repeat are drawn, as in
:mod:`.timeline`; places are :mod:`.axis`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from .axis import LAYER, SHARES, WIDE
from .bending import Bending, Column, bends, itself
from .categories import CATEGORIES
from .events import Event, Group, Node, Phase
from .records import dataclass
from .running import pick
from .timeline import sampled_turns, spaced
from .walk import Strip

_ALL = len(CATEGORIES)

#: An edge: places on the axis, in order, and the bytes below it at each.
Edge = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A stretch of one phase: where on the axis it starts and ends, and what is held at its end."""

    phase: Phase
    start: int
    end: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """A whole step: ``edges`` by category from the lowest up, and its ``bands``.

    The uppermost edge has everything below it; ``peak`` is the place of its highest point.
    """

    edges: tuple[Edge, ...]
    bands: tuple[Band, ...]
    peak: int


def edges(tree: Node, most: int) -> Edges:
    """The edges of a step of which about ``most`` events are drawn."""
    parts = _Parts()
    part = parts.part(tree)
    of_phase = dict.fromkeys(Phase, 0)
    part.weigh(1, of_phase)
    shown = [phase for phase, weight in of_phase.items() if weight]
    whole = sum(SHARES[phase] for phase in shown)
    each = {phase: WIDE * SHARES[phase] / (whole * of_phase[phase]) for phase in shown}
    nests: dict[tuple[int, ...], int] = {}
    part.nest((), nests)
    drawing = _Drawing(each, sampled_turns(nests, most), sorted(parts.moved), 2 * WIDE / most)
    part.draw(drawing)
    return drawing.done(most)


class _Leaf:
    """A stretch of events of one phase."""

    __slots__ = ("_bending", "_changes", "_columns", "count", "phase", "weight")

    repeats = False

    def __init__(self, bending: Bending, changes: Sequence[int]) -> None:
        self._bending, self._changes = bending, changes
        self._columns: list[Column] | None = None
        self.phase = bending.phase
        self.count = bending.count
        self.weight = LAYER

    def layer(self, weight: int) -> None:
        self.weight = weight

    def weigh(self, turns: int, of_phase: dict[Phase, int]) -> None:
        of_phase[self.phase] += turns * self.count * self.weight

    def nest(self, around: tuple[int, ...], found: dict[tuple[int, ...], int]) -> None:
        found[around] = found.get(around, 0) + self.count

    def width(self, drawing: _Drawing) -> float:
        """How wide one of its events is."""
        return self.weight * drawing.each.get(self.phase, 0.0)

    def columns(self, drawing: _Drawing) -> list[Column]:
        """What it does to the edges, as finely as the drawing shows it."""
        if self._columns is None:
            width = self.width(drawing)
            near = drawing.near / width if width else 0
            self._columns = self._bending.columns(self._changes, _ALL, near)
        return self._columns

    def passed(self, drawing: _Drawing, sums: list[int]) -> float:
        """Adds to ``sums`` what it leaves below each edge; returns how wide it is."""
        for column in self.columns(drawing):
            for edge in range(column.first, column.end):
                sums[edge] += column.total
        return self.count * self.width(drawing)

    def draw(self, drawing: _Drawing) -> None:
        drawing.stretch(self)


class _Row:
    """Parts in order."""

    __slots__ = ("count", "parts", "repeats")
    count: int
    repeats: bool

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        self.count = sum(part.count for part in parts)
        self.repeats = any(part.repeats for part in parts)

    def layer(self, weight: int) -> None:
        for part in self.parts:
            part.layer(weight)

    def weigh(self, turns: int, of_phase: dict[Phase, int]) -> None:
        for part in self.parts:
            part.weigh(turns, of_phase)

    def nest(self, around: tuple[int, ...], found: dict[tuple[int, ...], int]) -> None:
        for part in self.parts:
            part.nest(around, found)

    def passed(self, drawing: _Drawing, sums: list[int]) -> float:
        return sum(part.passed(drawing, sums) for part in self.parts)

    def draw(self, drawing: _Drawing) -> None:
        for part in self.parts:
            part.draw(drawing)


class _Turns:
    """A part that repeats."""

    __slots__ = ("child", "count", "turns")
    count: int

    repeats = True

    def __init__(self, turns: int, child: _Part) -> None:
        self.turns = turns
        self.child = child
        self.count = turns * child.count
        if not child.repeats:
            child.layer(LAYER // max(1, child.count))

    def layer(self, weight: int) -> None:
        """What repeats within is a layer of its own."""

    def weigh(self, turns: int, of_phase: dict[Phase, int]) -> None:
        self.child.weigh(turns * self.turns, of_phase)

    def nest(self, around: tuple[int, ...], found: dict[tuple[int, ...], int]) -> None:
        self.child.nest((*around, self.turns), found)

    def passed(self, drawing: _Drawing, sums: list[int]) -> float:
        once = [0] * _ALL
        width = self.child.passed(drawing, once)
        for edge, size in enumerate(once):
            sums[edge] += self.turns * size
        return self.turns * width

    def draw(self, drawing: _Drawing) -> None:
        last = -1
        once = [0] * _ALL
        width: float | None = None
        for turn in spaced(self.turns, drawing.turns):
            if skipped := turn - last - 1:
                if width is None:
                    width = self.child.passed(drawing, once)
                drawing.jump(skipped * width, [skipped * size for size in once])
            self.child.draw(drawing)
            last = turn


_Part = _Leaf | _Row | _Turns


class _Parts:
    """Makes a tree's nodes into parts, what stands in several places only once."""

    def __init__(self) -> None:
        self._made: dict[int, _Part] = {}
        #: The places of the categories that anything is of.
        self.moved: set[int] = set()

    def part(self, node: Node) -> _Part:
        found = self._made.get(id(node))
        if found is None:
            found = self._made[id(node)] = self._make(node)
        return found

    def _make(self, node: Node) -> _Part:
        if isinstance(node, Strip):
            return self._leaf(*node.bends())
        if isinstance(node, Group):
            stretch = _stretch(node.children)
            return self._leaf(*stretch) if stretch else _Row(list(self._row(node.children)))
        if isinstance(node, Event):
            return self._leaf(*bends([node]))
        return _Turns(node.count, self.part(node.child))

    def _row(self, nodes: Sequence[Node]) -> Iterator[_Part]:
        for phase, run in groupby(nodes, key=_phase):
            if phase is None:
                yield from map(self.part, run)
            else:
                yield self._leaf(*bends([event for event in run if isinstance(event, Event)]))

    def _leaf(self, bending: Bending, changes: Sequence[int]) -> _Leaf:
        self.moved.update(bending.categories)
        return _Leaf(bending, changes)


def _stretch(nodes: Sequence[Node]) -> tuple[Bending, Sequence[int]] | None:
    """Events and strips in a row as one stretch, where all of them are of one phase."""
    if len(nodes) < 2:
        return None
    phase: Phase | None = None
    codes: list[int] = []
    sizes: list[int] = []
    for node in nodes:
        if isinstance(node, Event):
            own = node.phase
            codes.append(2 * node.category.place + (node.bytes > 0))
            sizes.append(node.bytes)
        elif isinstance(node, Strip):
            bending, changes = node.bends()
            own = bending.phase
            codes += bending.codes
            sizes += bending.sizes(changes)
        else:
            return None
        if phase is not own and phase is not None:
            return None
        phase = own
    assert phase is not None
    return Bending(phase, tuple(codes), itself), sizes


def _phase(node: Node) -> Phase | None:
    return node.phase if isinstance(node, Event) else None


class _Drawing:
    """The edges as far as they are drawn: where on the axis, and what is held below each."""

    def __init__(
        self, each: Mapping[Phase, float], turns: int, moved: Sequence[int], near: float
    ) -> None:
        self.each = each
        self.turns = turns
        #: How far apart things must be to be told apart.
        self.near = near
        #: The edges that differ from the one below.
        self._own = moved
        self._ranges: dict[tuple[int, int], list[int]] = {}
        self._x = 0.0
        self._held = [0] * _ALL
        self._places: list[list[float]] = [[0.0] for _ in CATEGORIES]
        self._values: list[list[int]] = [[0] for _ in CATEGORIES]
        self._bands: list[tuple[Phase, float, float, int]] = []

    def stretch(self, leaf: _Leaf) -> None:
        """Draw one stretch of events from where the drawing is."""
        start = self._x
        width = leaf.width(self)
        for column in leaf.columns(self):
            places = [*map(start.__add__, map(width.__mul__, column.offsets))]
            for edge in self._between(column.first, column.end):
                held = self._held[edge]
                self._join(edge, places[0], held)
                self._places[edge] += places
                self._values[edge] += map(held.__add__, column.values)
                self._held[edge] = held + column.total
        self._x = start + width * leaf.count
        if self._bands and self._bands[-1][0] is leaf.phase:
            start = self._bands.pop()[1]
        self._bands.append((leaf.phase, start, self._x, self._held[self._own[-1]]))

    def jump(self, width: float, sums: Sequence[int]) -> None:
        """Draw a straight line past turns that are left out, which leave ``sums`` behind."""
        start, self._x = self._x, self._x + width
        for edge in self._own:
            if size := sums[edge]:
                held = self._held[edge]
                self._join(edge, start, held)
                self._places[edge] += (start, self._x)
                self._values[edge] += (held, held + size)
                self._held[edge] = held + size

    def _between(self, first: int, end: int) -> list[int]:
        """The edges of their own from ``first`` to before ``end``."""
        found = self._ranges.get((first, end))
        if found is None:
            found = self._ranges[first, end] = [e for e in self._own if first <= e < end]
        return found

    def _join(self, edge: int, place: float, held: int) -> None:
        """Take away the last corner of an edge where the next one would only repeat it."""
        places, values = self._places[edge], self._values[edge]
        if places[-1] == place and values[-1] == held:
            places.pop()
            values.pop()

    def done(self, most: int) -> Edges:
        """The edges drawn to the end of the axis."""
        found: list[Edge] = []
        below: Edge = ([WIDE], [0])
        for edge, held in enumerate(self._held):
            if edge in self._own:
                places, values = _thinned(self._places[edge], self._values[edge], most, self.near)
                below = ([*[int(place + 0.5) for place in places], WIDE], [*values, held])
            found.append(below)
        top_places, top = found[-1]
        return Edges(
            edges=tuple(found),
            bands=tuple(
                Band(phase=phase, start=int(start + 0.5), end=int(end + 0.5), bytes=held)
                for phase, start, end, held in self._bands
            ),
            peak=top_places[top.index(max(top))],
        )


def _thinned(
    places: Sequence[float], values: Sequence[int], most: int, near: float
) -> tuple[Sequence[float], Sequence[int]]:
    """About ``most`` corners: of those nearer than can be told apart the lowest and the highest.

    Of a schedule whose every round is another, two turns of each repeat may still be too many.
    """
    if len(places) <= most:
        return places, values
    kept: list[int] = []
    value = values.__getitem__
    begin = 0
    # By loops of Python's own: there are thousands of corners.
    for _, corners in groupby(map(near.__rfloordiv__, places)):
        end = begin + len(list(corners))
        if end - begin == 1:
            kept.append(begin)
        else:
            together = range(begin, end)
            kept += {min(together, key=value), max(together, key=value)}
        begin = end
    shown = pick(sorted(kept))
    return shown(places), shown(values)
