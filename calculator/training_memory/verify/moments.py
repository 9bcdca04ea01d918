"""The moments of a step at which memory is compared, and what the calculator predicts for each."""

from __future__ import annotations

from enum import StrEnum

from ..events import Group, Phase, expand


class Moment(StrEnum):
    """A point of a step, or the highest point of a part of it; in the order of a step."""

    BEFORE = "before"
    FORWARD_PEAK = "forward_peak"
    FORWARD_END = "forward_end"
    BACKWARD_PEAK = "backward_peak"
    BACKWARD_END = "backward_end"
    OPTIMIZER_PEAK = "optimizer_peak"
    OPTIMIZER_END = "optimizer_end"

    @property
    def heading(self) -> str:
        """As a table says it."""
        return _HEADINGS[self]


_HEADINGS = {
    Moment.BEFORE: "before the step",
    Moment.FORWARD_PEAK: "highest in the forward pass",
    Moment.FORWARD_END: "after the forward pass",
    Moment.BACKWARD_PEAK: "highest in the backward pass",
    Moment.BACKWARD_END: "after the backward pass",
    Moment.OPTIMIZER_PEAK: "highest in the optimizer's step",
    Moment.OPTIMIZER_END: "after the optimizer's step",
}

#: The parts of a step that a run measures one by one: the highest point and the end of each.
MEASURED: dict[Phase, tuple[Moment, Moment]] = {
    Phase.FORWARD: (Moment.FORWARD_PEAK, Moment.FORWARD_END),
    Phase.BACKWARD: (Moment.BACKWARD_PEAK, Moment.BACKWARD_END),
    Phase.OPTIMIZER: (Moment.OPTIMIZER_PEAK, Moment.OPTIMIZER_END),
}

#: The loss is the end of the forward pass to a program that runs both.
_PART_OF = {Phase.LOSS: Phase.FORWARD}


def predicted(step: Group) -> dict[Moment, int]:
    """Bytes at each moment of a step's tree of events, of one forward and one backward pass."""
    total = 0
    found: dict[Moment, int] = {Moment.BEFORE: 0}
    for event, _ in expand(step):
        phase = _PART_OF.get(event.phase, event.phase)
        if phase is Phase.BEFORE:
            total += event.bytes
            found[Moment.BEFORE] = total
            continue
        peak, end = MEASURED[phase]
        # A part's highest point may be where it begins.
        found[peak] = max(found.get(peak, total), total + event.bytes)
        total += event.bytes
        found[end] = total
    return found
