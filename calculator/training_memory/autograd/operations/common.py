"""What the operations share: reasons for saving, and how a gradient is named and found."""

from __future__ import annotations

from ..tape import Tape
from ..tensors import Grads, Tensor

PRODUCT = "The gradient of one factor is the other."
INPUT = "A weight's gradient is its input times the gradient of its output."
WEIGHT_COPY = (
    "The gradient of the input is the output's times the weight, in 16 bits as it was used."
)
OUTPUT = "Its slope is worked out from its own output."
ARGUMENT = "Its slope depends on where it was evaluated."
MASK = "Backward must drop the same values that forward dropped."
MASKED = "No gradient passes where a score was masked."
ATTENTION = "The fused kernel makes the scores again from these instead of keeping them."
RANDOM = "The fused kernel draws its dropout again from the same random numbers."
NORM = "The norm's gradient needs the values it normalised and their spread."
IDS = "Each token's gradient goes to the row that it was looked up in."
RUNS = "Where each expert's rows end."
TARGETS = "The loss's gradient needs to know which entry was right."

_WIDER = frozenset({"fp32", "bf16"})


def promoted(left: str, right: str) -> str:
    """The dtype of an operation on two tensors (torch.promote_types)."""
    if left == right:
        return left
    assert frozenset({left, right}) == _WIDER, (left, right)
    return "fp32"


def only(grads: Grads) -> Tensor:
    """The gradient of a single output."""
    gradient = grads[0]
    assert gradient is not None
    return gradient


def like(tape: Tape, x: Tensor, name: str, dtype: str | None = None) -> Tensor:
    """A new tensor of the same size, its memory in the same order."""
    order = "heads" if x.order == "repeats" else x.order
    return tape.new(name, x.numel, dtype or x.dtype, order)


def passed(tape: Tape, grads: Grads) -> tuple[Tensor]:
    """The backward pass of an operation whose gradient is that of its output."""
    return (only(grads),)
