"""The tape: all that a forward pass produces, kept by name until the backward pass is past it.

This file is where training's activation memory is. A forward pass alone could forget each value as
soon as the next operation has used it. To train, the same operations run again in reverse, and most
of them need a value that the forward pass had in its hands; so the forward pass may not forget.

This tape is generous: it keeps *all* that is produced. Then it watches what the backward pass
really reads (``recall``), so that a count can tell what was needed from what was not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .matrix import Rows, added, count


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A value on the tape: its name, its shape (the batch first) and the numbers themselves."""

    name: str
    shape: tuple[int, ...]
    rows: Rows

    @property
    def values(self) -> int:
        """How many numbers it holds, counted in its rows and not worked out from its shape."""
        return count(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One use of a kept value in the backward pass: what for, and by which formula."""

    use: str
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """How many values the tape held just after keeping or freeing one of them."""

    action: Literal["keep", "free"]
    name: str
    values: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One operation to undo: how, and which values it produced and nobody needs afterwards."""

    undo: Callable[[], None]
    produced: tuple[str, ...]


class Tape:
    """One forward and one backward pass.

    Operations pass each other the *names* of values, never the values: the tape is then the one
    place that holds them, and what it holds is what is in memory.
    """

    def __init__(self) -> None:
        self.kept: dict[str, Kept] = {}
        self.reads: dict[str, list[Read]] = {}
        self.timeline: list[Moment] = []
        self._steps: list[_Step] = []
        self._gradients: dict[str, Rows] = {}
        self._held = 0

    # The forward pass

    def keep(self, name: str, shape: tuple[int, ...], rows: Rows) -> None:
        """Keep what an operation has produced. A name can be used once."""
        if name in self.kept:
            raise ValueError(f"{name!r} is on the tape already")
        self.kept[name] = Kept(name=name, shape=shape, rows=rows)
        self._note("keep", name, self.kept[name].values)

    def rows(self, name: str) -> Rows:
        """A value, for the forward pass."""
        return self.kept[name].rows

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value, the batch first."""
        return self.kept[name].shape

    def on_backward(self, undo: Callable[[], None], *produced: str) -> None:
        """Say how to go back through the operation that has just produced these values."""
        self._steps.append(_Step(undo=undo, produced=produced))

    # The backward pass

    def backward(self) -> None:
        """Undo every operation, the last first, freeing what it had produced.

        By then each operation that used those values has been undone, since it came later.
        """
        while self._steps:
            step = self._steps.pop()
            step.undo()
            for name in step.produced:
                self._gradients.pop(name, None)
                self._note("free", name, -self.kept.pop(name).values)

    def recall(self, name: str, *, use: str, formula: str) -> Rows:
        """A value that the forward pass kept, for the backward pass, which says what for."""
        self.reads.setdefault(name, []).append(Read(use=use, formula=formula))
        return self.kept[name].rows

    def add_gradient(self, name: str, rows: Rows) -> None:
        """Add to dloss/dvalue. A value used twice receives two gradients, and they add up."""
        so_far = self._gradients.get(name)
        self._gradients[name] = rows if so_far is None else added(so_far, rows)

    def gradient(self, name: str) -> Rows:
        """dloss/dvalue, complete once every later operation has been undone."""
        return self._gradients[name]

    def _note(self, action: Literal["keep", "free"], name: str, change: int) -> None:
        self._held += change
        self.timeline.append(Moment(action=action, name=name, values=self._held))
