"""Which token each token is to predict."""

from __future__ import annotations

from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..categories import Category
from ..formula import product
from ..structure import Structure
from .sizes import ROWS


def next_tokens(tape: Tape, structure: Structure) -> Tensor:
    """Each token's target; the longer labels go, unless the targets are a view of them."""
    padded = padded_labels(tape)
    return shifted(tape, padded, structure)


def padded_labels(tape: Tape) -> Tensor:
    """The labels with one more for each sequence, so that each token's next can be looked up."""
    with tape.as_category(Category.ACTIVATIONS):
        return tape.new("labels padded", ROWS + product(("b",)), "int64")


def shifted(tape: Tape, padded: Tensor, structure: Structure) -> Tensor:
    """Each token's target, the next token: a copy, but a view where there is one sequence."""
    if structure.one_sequence:
        return padded.part(ROWS)
    with tape.as_category(Category.ACTIVATIONS):
        return tape.new("targets", ROWS, "int64")
