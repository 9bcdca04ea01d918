"""Hugging Face's Phi-3 and Phi-4, operation by operation: fused projections, sliced.

Follows ``transformers`` 5.24, models/phi3/modeling_phi3.py.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..formula import Formula, symbol
from ..structure import Structure
from .attention import Attended, attend
from .llama import projected_back
from .rms import norm
from .rotary import rotated
from .shared import Shared
from .sizes import KEYS, QUERIES, TOKENS, WIDE


def attention(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Attended:
    """Self-attention; queries, keys and values are slices of one projection."""
    with tape.module("attention"):
        joint = op.linear(
            tape,
            x,
            w.of("query, key and value", _HEADS),
            QUERIES + 2 * KEYS,
            "query, key and value",
        )
        q = op.part(tape, joint, QUERIES)
        k = op.part(tape, joint, KEYS)
        v = op.part(tape, joint, KEYS)
        one = structure.one_key_head
        q = op.heads(tape, q)
        k, v = op.heads(tape, k, one=one), op.heads(tape, v, one=one)
        q, k = _both_rotated(tape, q, k, shared)
        context, weights = attend(tape, q, k, v, structure, shared.held)
        return projected_back(tape, context, w, structure), weights


_HEADS = (symbol("a") + 2 * symbol("g")) * symbol("e") * symbol("h")


def _both_rotated(tape: Tape, q: Tensor, k: Tensor, shared: Shared) -> tuple[Tensor, Tensor]:
    """``apply_rotary_pos_emb``: the first features are rotated and joined with the others."""
    q_turning, q_passed = _divided(tape, q)
    k_turning, k_passed = _divided(tape, k)
    assert shared.turn is not None
    q = op.joined(tape, [rotated(tape, q_turning, shared.turn), q_passed], "queries")
    k = op.joined(tape, [rotated(tape, k_turning, shared.turn), k_passed], "keys")
    return q, k


def _divided(tape: Tape, x: Tensor) -> tuple[Tensor, Tensor]:
    """The features to rotate, which are all of them, and the others. The first is a mere view."""
    turning = op.view(tape, x)
    return turning, op.part(tape, x, Formula())


def mlp(tape: Tape, x: Tensor, w: Weights, structure: Structure) -> Tensor:
    """Phi3MLP: gate and up are halves of one projection."""
    with tape.module("mlp"):
        both = op.linear(tape, x, w("gate and up", 2, "f", "h"), 2 * WIDE, "gate and up")
        gate, up = op.chunk(tape, both)
        if structure.fused_mlp:
            # Liger's kernel wants its rows whole, and halves of one projection are not.
            up = op.gated(tape, gate, up, copies=True)
        else:
            activate = op.silu if structure.activation == "silu" else op.gelu
            up = op.multiply(tape, up, activate(tape, gate), "gated")
        return op.linear(tape, up, w("down", "h", "f"), TOKENS, "down")


def layer(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Tensor:
    """One decoder layer."""
    residual = x
    with tape.module("attention norm"):
        x = norm(tape, x, w("attention norm", "h"), structure)
    x, _ = attention(tape, x, w, structure, shared)
    x = op.add(tape, residual, op.dropout(tape, x, drops=structure.drops), "residual stream")
    residual = x
    with tape.module("mlp norm"):
        x = norm(tape, x, w("mlp norm", "h"), structure)
    x = mlp(tape, x, w, structure)
    return op.add(tape, residual, op.dropout(tape, x, drops=structure.drops), "residual stream")
