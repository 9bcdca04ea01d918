"""Where each event of a step stands from left to right, in a picture of the step.

Every phase has its share of the width, and within a phase every layer the same width, however many
events it has; an event outside the layers is as wide as one layer. So two runs of a model line up
layer by layer, though one of them makes ten times as many events in its backward pass. The axis is
the order of events, not seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from .events import Event, Group, Node, Phase
from .timeline import Point

#: The right end of the axis; the left is 0.
WIDE = 10_000

#: How much of the width each phase has, beside the others.
SHARES = {
    Phase.BEFORE: 8,
    Phase.FORWARD: 37,
    Phase.LOSS: 5,
    Phase.BACKWARD: 42,
    Phase.OPTIMIZER: 8,
}
#: One layer's weight, divided among its events, and a width's fractions: whole numbers throughout,
#: so that every Python places an event alike.
LAYER = 1 << 20
_FINE = 1 << 40


def repeats(node: Node) -> bool:
    """Whether anything in ``node`` repeats; what is repeated and repeats nothing is a layer."""
    if isinstance(node, Event):
        return False
    return not isinstance(node, Group) or any(repeats(child) for child in node.children)


class Axis:
    """The places of one step's events, found without expanding its repeats."""

    def __init__(self, tree: Node) -> None:
        self._tree = tree
        #: Of groups and repeats alone; an event is one.
        self._counts: dict[int, int] = {}
        self._count(tree)
        self._weights: dict[int, int] = {}
        self._of_phase = dict.fromkeys(Phase, 0)
        self._weigh(tree, 1, LAYER)
        self._widths: dict[int, int] = {}
        #: For each group, how many events and how much width come before each child and after all.
        self._passed: dict[int, tuple[list[int], list[int]]] = {}
        self._whole = max(1, self._measure(tree))

    def places(self, points: Sequence[Point]) -> list[int]:
        """:meth:`after` of every one of the step's ``points``, which are in order."""
        found = []
        passed, last = 0, -1
        for point in points:
            if point.at == last + 1:
                passed += self._widths[id(point.event)]
            else:
                passed = self._before(self._tree, point.at + 1)
            last = point.at
            found.append(passed * WIDE // self._whole)
        return found

    def after(self, at: int) -> int:
        """The place just after event ``at`` (from 0, among all events), from 0 to :data:`WIDE`."""
        return self._before(self._tree, at + 1) * WIDE // self._whole

    def before(self, at: int) -> int:
        """The place where event ``at`` begins."""
        return self.after(at - 1)

    def _count(self, node: Node) -> int:
        """Note how many events there are in every group and repeat."""
        if isinstance(node, Event):
            return 1
        if isinstance(node, Group):
            found = 0
            for child in node.children:
                found += 1 if isinstance(child, Event) else self._count(child)
        else:
            found = node.count * self._count(node.child)
        self._counts[id(node)] = found
        return found

    def _weigh(self, node: Node, turns: int, each: int) -> None:
        """Note each event's weight, and add up the phases' weights."""
        if isinstance(node, Event):
            self._weights[id(node)] = each
            self._of_phase[node.phase] += turns * each
        elif isinstance(node, Group):
            for child in node.children:
                if isinstance(child, Event):
                    self._weights[id(child)] = each
                    self._of_phase[child.phase] += turns * each
                else:
                    self._weigh(child, turns, each)
        else:
            layer = not repeats(node.child)
            each = LAYER // max(1, self._events(node.child)) if layer else LAYER
            self._weigh(node.child, turns * node.count, each)

    def _measure(self, node: Node) -> int:
        if isinstance(node, Event):
            weight = self._weights[id(node)] * SHARES[node.phase]
            # A phase whose only repeat runs zero times weighs nothing and takes no width.
            found = weight * _FINE // max(1, self._of_phase[node.phase])
        elif isinstance(node, Group):
            events = accumulate(map(self._events, node.children), initial=0)
            widths = list(accumulate(map(self._measure, node.children), initial=0))
            self._passed[id(node)] = list(events), widths
            found = widths[-1]
        else:
            found = node.count * self._measure(node.child)
        self._widths[id(node)] = found
        return found

    def _events(self, node: Node) -> int:
        return 1 if isinstance(node, Event) else self._counts[id(node)]

    def _before(self, node: Node, events: int) -> int:
        """The width of the first ``events`` events of ``node``."""
        passed = 0
        while events:
            if events == self._events(node):
                return passed + self._widths[id(node)]
            if isinstance(node, Group):
                counts, widths = self._passed[id(node)]
                # The last child before which there are fewer events: it has some of these.
                child = bisect_left(counts, events) - 1
                events -= counts[child]
                passed += widths[child]
                node = node.children[child]
            elif not isinstance(node, Event):
                turns, events = divmod(events, self._events(node.child))
                passed += turns * self._widths[id(node.child)]
                node = node.child
        return passed
