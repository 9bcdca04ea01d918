"""The kinds of memory, in the order in which they are shown everywhere."""

from __future__ import annotations

from enum import StrEnum


class Category(StrEnum):
    """What a byte is for."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    MASTER = "master"
    ACTIVATIONS = "activations"
    #: One layer's activations made again in the backward pass: they come on top of what was kept,
    #: and are gone a moment later, so they are not among what the forward pass keeps.
    RECOMPUTED = "recomputed"
    LOGITS = "logits"
    #: What is on its way: gradients that flow through a layer, copies in another format, what the
    #: optimizer needs for a moment.
    TEMPORARY = "temporary"

    #: Its place in the order, from 0.
    place: int
    #: The codes of what leaves it and of what comes to it (running.py).
    leaves: int
    comes: int

    def __init__(self, _: str) -> None:
        # Kept rather than looked up: pictures ask for it at every event.
        self.place = len(type(self).__members__)
        self.leaves, self.comes = 2 * self.place, 2 * self.place + 1

    @property
    def heading(self) -> str:
        """As a heading or legend says it."""
        return _HEADINGS[self]


_HEADINGS = {
    Category.WEIGHTS: "Weights",
    Category.GRADIENTS: "Gradients",
    Category.OPTIMIZER: "Adam state",
    Category.MASTER: "Master copy",
    Category.ACTIVATIONS: "Activations",
    Category.RECOMPUTED: "Recomputed layer",
    Category.LOGITS: "Logits",
    Category.TEMPORARY: "Working memory",
}
CATEGORIES: tuple[Category, ...] = tuple(Category)
STATES: tuple[Category, ...] = (
    Category.WEIGHTS,
    Category.GRADIENTS,
    Category.OPTIMIZER,
    Category.MASTER,
)
