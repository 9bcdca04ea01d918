"""What happens in DeepSpeed's own code, as events."""

from __future__ import annotations

from collections.abc import Iterator

from ..categories import Category
from ..events import Event, Phase
from ..layouts import rounded

GOES = "Nothing reads it any more."
_WHERE = {Phase.OPTIMIZER: "optimizer's step", Phase.BACKWARD: "backward pass"}


def for_a_moment(
    name: str, size: int, why: str, *, phase: Phase = Phase.OPTIMIZER
) -> Iterator[Event]:
    """So many bytes are taken and given back."""
    if size:
        yield event(name, rounded(size), Category.TEMPORARY, why, phase=phase)
        yield event(name, -rounded(size), Category.TEMPORARY, GOES, phase=phase)


def event(
    name: str, size: int, category: Category, why: str, *, phase: Phase = Phase.OPTIMIZER
) -> Event:
    """So many bytes are taken, or given back."""
    return Event(
        phase=phase,
        category=category,
        bytes=size,
        label=f"{name} {'is made' if size > 0 else 'is freed'}",
        why=why,
        moment=f"in the {_WHERE[phase]}, at {name} (DeepSpeed)",
    )
