"""From the last hidden states to the loss, with all logits at once; other ways are beside this."""

from __future__ import annotations

from collections.abc import Callable

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Parameter, Tensor
from ..categories import Category
from ..structure import Structure
from . import chunked_losses, compiled, parallel
from .sizes import LOGITS
from .targets import padded_labels, shifted


def of(
    tape: Tape,
    hidden: Callable[[], Tensor],
    head: Parameter,
    bias: Parameter | None,
    labels: Tensor,
    structure: Structure,
    chunks: int,
) -> tuple[Tensor, Tensor | None]:
    """The loss, and the logits where all of them exist."""
    if structure.loss == "full":
        return full(tape, hidden, head, bias, labels, structure)
    x = hidden()
    tape.mark("forward", "loss")
    with tape.module("loss"):
        made = chunked_losses.chunked if structure.loss == "chunked" else chunked_losses.fused
        loss = made(tape, x, head, bias, structure, chunks)
    tape.units.end(loss)
    return loss, None


def full(
    tape: Tape,
    hidden: Callable[[], Tensor],
    head: Parameter,
    bias: Parameter | None,
    labels: Tensor,
    structure: Structure,
) -> tuple[Tensor, Tensor]:
    """The loss and all logits, as a model's own forward pass makes them."""
    x = hidden()
    tape.mark("forward", "head")
    with tape.as_category(Category.LOGITS):
        with tape.module("head"):
            given = parallel.into(tape, x, structure, "head input")
            given = parallel.by_columns(tape, given, structure, "head input")
            logits = op.linear(tape, given, head, LOGITS, "logits", bias)
            logits = parallel.whole_logits(tape, logits, structure)
            del given
            tape.units.after("tail", logits)
            if structure.implementation != "huggingface":
                del x  # transformers' models have a variable that goes on holding it
            if structure.caps_logits:
                # Gemma 2: tanh(logits / cap) * cap, the variable set anew each time.
                logits = op.scale(tape, logits, "logits over the cap")
                logits = op.tanh(tape, logits)
                logits = op.scale(tape, logits, "capped logits")
        if structure.implementation != "huggingface":
            tape.units.end(logits)
        tape.mark("forward", "loss")
        with tape.module("loss"):
            loss = _of_all(tape, logits, labels, structure)
    if structure.implementation == "huggingface":
        tape.units.end(loss, logits)
    return loss, logits


def _of_all(tape: Tape, logits: Tensor, labels: Tensor, structure: Structure) -> Tensor:
    """ForCausalLMLoss of transformers' loss/loss_utils.py, and what the plain models do."""
    if structure.compiled == "layers-and-loss":
        return compiled.loss(tape, logits, labels)
    logits = op.cast(tape, logits, "fp32", "logits in fp32")
    if structure.implementation == "torchtitan":
        # Its labels are each token's next already.
        if structure.split.tensor:
            return op.cross_entropy_in_parallel(tape, logits, labels)
        return op.cross_entropy(tape, logits, labels)
    padded = padded_labels(tape)
    targets = shifted(tape, padded, structure)
    if structure.implementation != "huggingface":
        del padded  # transformers' function has a variable that goes on holding it
    return op.cross_entropy(tape, logits, targets)
