"""Hugging Face's mixture of experts in place of a feed-forward layer, as Mixtral has it.

transformers 5.24, models/mixtral/modeling_mixtral.py, and ``grouped_mm_experts_forward`` of
integrations/moe.py, which is what experts run by where nothing else is asked for.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..formula import product
from ..structure import Structure
from .sizes import CHOSEN, DISPATCHED, DISPATCHED_WIDE, ROUTED, ROWS, TOKENS

EXPERTS = product(("x",))


def mixture(tape: Tape, x: Tensor, w: Weights, structure: Structure) -> Tensor:
    """MixtralSparseMoeBlock."""
    with tape.module("experts"):
        x = op.view(tape, x)  # sequences joined
        _logits, weights, chosen = _router(tape, op.view(tape, x), w)
        return _experts(tape, x, chosen, weights, w, structure)


def _router(tape: Tape, x: Tensor, w: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """MixtralTopKRouter: the scores, those of the chosen experts made to sum to one, and which."""
    logits = op.linear(tape, x, w("router", "x", "h"), ROUTED, "router")
    chances = op.softmax(tape, op.cast(tape, logits, "fp32", "router in fp32"))
    values, places = op.highest(tape, chances, CHOSEN, "chosen experts")
    values = op.divide_in_place(tape, values, op.summed(tape, values, ROWS, "chosen in all"))
    return logits, values, places


def _experts(
    tape: Tape, x: Tensor, chosen: Tensor, weights: Tensor, w: Weights, structure: Structure
) -> Tensor:
    """``grouped_mm_experts_forward``: tokens sorted by expert, and put back in order after."""
    # What nothing reads is held by a variable all the same, until the function returns.
    _by_expert, order = (tape.new(name, CHOSEN, "int64") for name in ("experts sorted", "order"))
    taken = op.rows(
        tape, x, tape.new("token numbers", CHOSEN, "int64"), DISPATCHED, "tokens sorted"
    )
    weights = op.rows(tape, weights, order, CHOSEN, "weights sorted")
    _counted = tape.new("experts, to be counted", CHOSEN, "int32")
    _counts = tape.new("tokens of each expert", EXPERTS, "int32")
    ends = tape.new("ends of each expert's tokens", EXPERTS, "int32")
    both = w("experts' gate and up", "x", 2, "f", "h"), ends, 2 * DISPATCHED_WIDE
    made = _gated(tape, op.grouped(tape, taken, *both, "gate and up"), structure)
    made = op.grouped(tape, made, w("experts' down", "x", "h", "f"), ends, DISPATCHED, "down")
    weighted = op.multiply(tape, made, weights, "weighted")
    back = tape.new("order back", CHOSEN, "int64")
    tape.new("numbers", CHOSEN, "int64")  # put into the order back, and gone
    weighted = op.rows(tape, weighted, back, DISPATCHED, "tokens in order again")
    result = op.summed(tape, weighted, TOKENS, "experts' sum", copies=True)
    return op.cast(tape, result, x.dtype, "experts' output")


def _gated(tape: Tape, x: Tensor, structure: Structure) -> Tensor:
    """``_default_apply_gate``: act(gate) · up of the two halves."""
    gate, up = op.chunk(tape, x)
    activate = op.silu if structure.activation == "silu" else op.gelu
    return op.multiply(tape, activate(tape, gate), up, "gated")
