"""One training step as a tree of events: what is allocated and freed, in order.

Layers and micro-batches are *repeats* of one subtree, not copies, so that a step of 800 layers is
as small a tree as one of 8. :mod:`.walk` finds the peak without expanding it; :func:`expand`
plays it event by event, for pictures, for the animated step and to check the walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from .categories import Category
from .records import dataclass


class Phase(StrEnum):
    """The parts of a step, as the pictures label them."""

    BEFORE = "before the step"
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Memory taken (``bytes`` > 0) or given back (< 0) at one point of the step.

    ``label`` names it in a few words, ``why`` says in a sentence what happens and what for;
    ``moment`` completes "the peak comes …" should this be the highest point. In all three,
    ``{layer}`` and the like stand for the counters of the repeats around the event.
    """

    phase: Phase
    category: Category
    bytes: int
    label: str
    why: str
    moment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Events and groups in order, under one name."""

    label: str
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that a repeat counts: ``first`` in its first run, ``step`` further each time."""

    name: str
    first: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """``count`` runs of ``child``, with the counters that tell one run from the next."""

    count: int
    child: Node
    counters: tuple[Counter, ...]

    def counted(self, turn: int) -> dict[str, int]:
        """Each counter's value in run ``turn``, from 0."""
        return {counter.name: counter.first + turn * counter.step for counter in self.counters}


Node = Event | Group | Repeat

#: Where an event stands: the value of each counter around it.
Counters = Mapping[str, int]


def place(text: str, counters: Counters) -> str:
    """A label, reason or moment with its counters filled in.

    A counter "forward+" is what an outer repeat adds to the inner one's "forward".
    """
    for name, value in counters.items():
        text = text.replace(f"{{{name}}}", f"{value + counters.get(f'{name}+', 0):,}")
    return text


def expand(node: Node, counters: Counters | None = None) -> Iterator[tuple[Event, Counters]]:
    """Every event of the tree in order, with the counters that place it."""
    here = counters or {}
    if isinstance(node, Event):
        yield node, here
    elif isinstance(node, Group):
        for child in node.children:
            yield from expand(child, here)
    else:
        for turn in range(node.count):
            yield from expand(node.child, {**here, **node.counted(turn)})


def count(node: Node) -> int:
    """How many events :func:`expand` yields, without expanding."""
    if isinstance(node, Event):
        return 1
    if isinstance(node, Group):
        return sum(count(child) for child in node.children)
    return node.count * count(node.child)
