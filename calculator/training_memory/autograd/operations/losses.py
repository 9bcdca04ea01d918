"""Cross-entropy."""

from __future__ import annotations

from ...formula import as_formula
from ..tape import Tape
from ..tensors import Grads, Tensor
from .common import ARGUMENT, TARGETS
from .elementwise import from_output

ONE = as_formula(1)


def cross_entropy(tape: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """``F.cross_entropy``: log-softmax, which saves its output, and the negative log-likelihood."""
    scores = from_output(tape, logits, "log_softmax", "log-probabilities")
    numel, dtype = scores.numel, scores.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of log-probabilities", numel, dtype),)

    node = tape.node("nll_loss", [scores], backward, [(scores, ARGUMENT), (targets, TARGETS)])
    loss = tape.new("loss", ONE, dtype)
    weight = tape.new("loss's total weight", ONE, dtype)
    tape.attach(node, loss, saves=[(weight, ARGUMENT)])
    return loss
