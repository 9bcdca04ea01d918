"""Which weights modules ask for in a micro-batch, in order: what DeepSpeed calls its trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, cycle, islice, pairwise

from ..recorded import Sized
from ..recording import Section
from ..weaving import sections
from .flat import Weights

#: Notes of a module that asks for its weights, to run or to run backwards.
ASKS = frozenset(("use", "back"))
#: In place of a weight, where there is none.
NONE = -1

#: Layers in a row that ask for the same: from which place on, the first layer, how far the next one
#: is, how many there are, how many places each has, and where within them each weight is.
_Row = tuple[int, int, int, int, int, dict[int, list[int]]]


class Trace:
    """The order of a micro-batch; a weight is its place in the model's order.

    A loss that reads the head's weight by itself makes it the whole model's own (``outer``), which
    asks for it as it begins and holds it (parameter_offload.py, ZeROOrderedDict).
    """

    def __init__(self, weights: Weights, made: Sized, turn: int, outer: str | None) -> None:
        self.layers = weights.of_layers
        self.each = len(weights.layer)
        self._places = weights.places()
        self.outer = NONE if outer is None else self._places[outer]
        self.asked: list[int] = [] if outer is None else [self.outer]
        self._rows: list[_Row] = []
        #: Of a layer, from which places on it asks for weights, and where within them for which.
        self._of_layer: dict[int, list[tuple[int, dict[int, list[int]]]]] = {}
        both = [*sections(made, "forward", turn), *sections(made, "backward", turn)]
        #: How often the model's own weight is used until the loss reads it, which calls no module.
        self.uses_of_outer = 0
        if outer is not None:
            self.uses_of_outer = sum(
                (kind, weight) == ("use", outer) for one in both for _, kind, weight in one.notes
            )
        left = self.uses_of_outer
        for section in both:
            if section.part[0] == "layer":
                times, first, step = made.counted(section)
                others, own = _asks(section.before_last or section), _asks(section)
                alike = times if others == own else times - 1
                self._ask(others, first - 1, step, alike)
                self._ask(own, first - 1 + alike * step, step, times - alike)
                continue
            times = made.counted(section)[0] if section.part[0] in made.repeats else 1
            for _, kind, weight in times * section.notes:
                if kind == "use" and weight == outer:
                    left -= 1
                    if not left:
                        continue
                if kind in ASKS and (place := self.place(weight)) != NONE:
                    self.asked.append(place)
        self._others: dict[int, list[int]] = {}
        outside = [place for place in self._places.values() if place not in weights.of_layers]
        for place in outside:
            self._others[place] = list(_where(self.asked, place))
        #: The numbers of all that comes before each place.
        self.before = list(accumulate(map(weights.numels().__getitem__, self.asked), initial=0))

    def place(self, weight: str, layer: int = 0) -> int:
        """A weight's place in the model's order, :data:`NONE` where there is no such."""
        place = self._places.get(weight, NONE)
        return place + layer * self.each if place in self.layers else place

    def _ask(self, names: Sequence[str], first: int, step: int, layers: int) -> None:
        """Layers in a row ask for weights, from number ``first`` (from 0) on."""
        places = [place for name in names if (place := self.place(name, first)) != NONE]
        if not places or not layers:
            return
        each = len(places)
        within: dict[int, list[int]] = {}
        for at, place in enumerate(places):
            within.setdefault((place - self.layers.start) % self.each, []).append(at)
        self._rows.append((len(self.asked), first, step, layers, each, within))
        # One after the other's difference, by loops of Python's own: there are thousands.
        apart = [after - before for before, after in pairwise(places)]
        further = [*apart, places[0] + step * self.each - places[-1]]
        every = chain(places[:1], islice(cycle(further), layers * each - 1))
        self.asked += accumulate(every)

    def again(self, weight: int, at: int) -> int | None:
        """The first place from ``at`` on where a weight is asked for."""
        if weight not in self.layers:
            return next((place for place in self._others[weight] if place >= at), None)
        layer, which = divmod(weight - self.layers.start, self.each)
        of_layer = self._of_layer.get(layer)
        if of_layer is None:
            of_layer = self._of_layer[layer] = [
                (start + (layer - first) * step * each, within)
                for start, first, step, layers, each, within in self._rows
                if 0 <= (layer - first) * step < layers
            ]
        for start, within in of_layer:
            for place in within.get(which, ()):
                if start + place >= at:
                    return start + place
        return None


def _asks(section: Section) -> list[str]:
    """The weights that a section asks for."""
    return [weight for _, kind, weight in section.notes if kind in ASKS]


def _where(asked: Sequence[int], weight: int) -> Iterator[int]:
    at = -1
    try:
        while True:
            at = asked.index(weight, at + 1)
            yield at
    except ValueError:
        return
