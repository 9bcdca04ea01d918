"""Hugging Face's GPT-2, operation by operation.

Follows ``transformers`` 5.24, models/gpt2/modeling_gpt2.py.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..structure import Structure
from .attention import Attended, attend
from .shared import Shared
from .sizes import QUERIES, ROWS, TOKENS, WIDE


def gelu_new(tape: Tape, x: Tensor) -> Tensor:
    """NewGELUActivation: ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), each operation by itself."""
    return op.multiply(
        tape,
        op.scale(tape, x, "half"),
        op.add_number(tape, op.tanh(tape, _inner(tape, x)), "1 + tanh"),
        "GELU output",
    )


def _inner(tape: Tape, x: Tensor) -> Tensor:
    """What tanh is taken of. No variable holds any of it, as in the original's one expression."""
    return op.scale(tape, op.add(tape, x, op.scale(tape, op.cube(tape, x), "cube scaled")), "inner")


def attention(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Attended:
    """Self-attention with one projection for queries, keys and values, and two dropouts."""
    with tape.module("attention"):
        name = "query, key and value"
        joint = w(name, "h", 3, "h"), 3 * TOKENS, name, w(f"{name} bias", 3, "h")
        q, k, v = op.split(tape, op.affine(tape, x, *joint), [QUERIES] * 3)
        k, v = op.heads(tape, k), op.heads(tape, v)
        q = op.heads(tape, q)
        context, weights = attend(tape, q, k, v, structure, shared.held)
        back = w("attention output", "h", "h"), TOKENS, "attention output"
        context = op.affine(tape, context, *back, w("attention output bias", "h"))
        context = op.dropout(tape, context, drops=structure.drops)
        return context, weights


def mlp(tape: Tape, x: Tensor, w: Weights, structure: Structure) -> Tensor:
    """The feed-forward layer with its dropout."""
    with tape.module("mlp"):
        x = op.affine(tape, x, w("up", "h", "f"), WIDE, "up", w("up bias", "f"))
        by_itself = structure.activation == "gelu-tanh" and not structure.fused_mlp
        x = gelu_new(tape, x) if by_itself else op.gelu(tape, x)
        x = op.affine(tape, x, w("down", "f", "h"), TOKENS, "down", w("down bias", "h"))
        return op.dropout(tape, x, drops=structure.drops)


def layer(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Tensor:
    """One block."""
    residual = x
    with tape.module("attention norm"):
        x = op.layer_norm(tape, x, w("attention norm", "h"), w("attention norm bias", "h"), ROWS)
    attended, _ = attention(tape, x, w, structure, shared)
    x = op.add(tape, attended, residual, "residual stream")
    residual = x
    with tape.module("mlp norm"):
        x = op.layer_norm(tape, x, w("mlp norm", "h"), w("mlp norm bias", "h"), ROWS)
    made = mlp(tape, x, w, structure)
    return op.add(tape, residual, made, "residual stream")
