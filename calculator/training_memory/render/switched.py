"""What each switch of an implementation would change: every other choice, in bytes of the peak."""

from __future__ import annotations

from collections.abc import Iterator

from .. import controls
from ..errors import InputErrors
from ..estimate import peak_bytes
from ..implementations import Implementation
from ..recorded_step import structure
from ..run import Run
from ..slices import Work, finished
from ..units import show_bytes
from .fields import BY_NAME, Field, Kind, Place, at


def switches_of(run: Run) -> tuple[str, ...]:
    """The fields that can be set otherwise, in the form's order; the textbook has but one."""
    names = tuple(field.name for field in at(Place.IMPLEMENTATION))
    return names[:1] if run.implementation is Implementation.PAPER else names


def switched(name: str, run: Run, state: controls.State, *, binary: bool = False) -> str:
    """What a field's other choices would change of the worst GPU's peak, in GB or GiB.

    A choice that the run cannot have is left out, as is another name for what it has. Each choice
    takes a walk of its own, so this is not for the answer that a reader waits for.
    """
    return finished(switched_in_steps(name, run, state, binary=binary))


def switched_in_steps(
    name: str, run: Run, state: controls.State, *, binary: bool = False
) -> Work[str]:
    """:func:`switched`, which may be left off after every choice."""
    now = peak_bytes(run)
    said = []
    for label, other in _others(BY_NAME[name], run, state):
        said.append(f"{label}: {_difference(peak_bytes(other) - now, binary=binary)}")
        yield
    return "; ".join(said)


def _others(field: Field, run: Run, state: controls.State) -> Iterator[tuple[str, Run]]:
    for value, label in _choices(field):
        if value == "":
            continue  # the implementation's own way, which is one of the others
        try:
            other = controls.read(controls.changed(state, {field.name: value}))
        except InputErrors:
            continue
        if not _is_another_name(field, other, run):
            yield label, other


def _choices(field: Field) -> Iterator[tuple[str, str]]:
    if field.kind is Kind.FLAG:
        yield from (("true", "On"), ("false", "Off"))
    elif field.choices is not None:
        for choices in field.choices().values():
            yield from choices


def _is_another_name(field: Field, other: Run, run: Run) -> bool:
    """Whether a choice is what the run has already, set by hand or as the implementation's own."""
    if other == run:
        return True
    can_be_unset = getattr(type(run.switches)(), field.name, "") is None
    return can_be_unset and structure(other) == structure(run)


def _difference(size: int, *, binary: bool) -> str:
    if not size:
        return "the same"
    return f"{show_bytes(abs(size), binary=binary)} {'more' if size > 0 else 'less'}"
