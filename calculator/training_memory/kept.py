"""What one layer keeps for its backward pass, tensor by tensor, read off a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from .autograd.memory import WORKING, Facts
from .formula import Formula
from .recording import Recording
from .records import dataclass


class Kind(StrEnum):
    """Whose a kept tensor is."""

    #: The layer's own.
    KEPT = "kept"
    #: Autocast's 16-bit copy of a weight.
    WEIGHT_COPY = "weight copy"
    #: Made once a step for all layers: rotary tables, masks.
    SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRow:
    """A tensor that one layer's backward pass needs; tensors in the same memory are one row.

    ``module`` is the part of the layer that made it, "" where that is the layer itself or the one
    before. ``numbers`` counts its numbers and ``formula`` its bytes, in the run's symbols;
    ``bytes`` is what the formula comes to, not rounded. ``saved_by`` are the operations that keep
    it, with the module each is in, and ``why`` the reason for each in a sentence.
    """

    kind: Kind
    name: str
    module: str
    dtype: str
    numbers: Formula
    formula: Formula
    bytes: int
    saved_by: tuple[str, ...]
    why: tuple[str, ...]


def kept_rows(recording: Recording, values: Mapping[str, int]) -> tuple[KeptRow, ...]:
    """What a layer in the middle keeps, in the order in which it is made; values as for sizes.

    Parameters are left out: they are there anyway.
    """
    return tuple(_rows(recording, values))


def _rows(recording: Recording, values: Mapping[str, int]) -> Iterator[KeptRow]:
    layers = {facts.part[1] for facts in recording.facts if facts.part[0] == "layer"}
    middle = ("layer", min(1, max(layers)))
    for facts in recording.facts:
        uses = [use for use in facts.uses if use.part == middle]
        if not uses:
            continue
        formula = facts.bytes
        yield KeptRow(
            kind=_kind(facts),
            name=facts.name,
            module=facts.module,
            dtype=facts.dtype,
            numbers=facts.numel,
            formula=formula,
            bytes=formula.evaluate(values),
            saved_by=tuple(
                dict.fromkeys(f"{use.module}: {use.operation}".lstrip(": ") for use in uses)
            ),
            why=tuple(dict.fromkeys(use.why for use in uses)),
        )


def _kind(facts: Facts) -> Kind:
    if facts.category is WORKING:
        return Kind.WEIGHT_COPY
    return Kind.KEPT if facts.part[0] == "layer" else Kind.SHARED
