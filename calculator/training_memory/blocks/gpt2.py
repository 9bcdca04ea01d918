"""Hugging Face's GPT-2, operation by operation.

Follows ``transformers`` 5.24, models/gpt2/modeling_gpt2.py.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape, Tensor
from ..autograd.weights import Weights
from ..structure import Structure
from .attention import attend
from .sizes import QUERIES, ROWS, TOKENS, WIDE


def gelu_new(tape: Tape, x: Tensor) -> Tensor:
    """NewGELUActivation: ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), each operation by itself."""
    half = op.scale(tape, x, "half")
    inner = op.scale(
        tape, op.add(tape, x, op.scale(tape, op.cube(tape, x), "cube scaled")), "inner"
    )
    return op.multiply(
        tape, half, op.add_small(tape, op.tanh(tape, inner), "1 + tanh"), "GELU output"
    )


def attention(
    tape: Tape, x: Tensor, w: Weights, structure: Structure, mask: Tensor | None
) -> Tensor:
    """Self-attention with one projection for queries, keys and values, and two dropouts."""
    joint = op.linear(
        tape,
        x,
        w("query, key and value", "h", 3, "h"),
        3 * TOKENS,
        "query, key and value",
        w("query, key and value bias", 3, "h"),
    )
    q, k, v = (one.view(heads_apart=True) for one in op.split(tape, joint, [QUERIES] * 3))
    del joint
    context = attend(tape, q, k, v, mask, structure, drops=True)
    del q, k, v
    out = op.linear(
        tape,
        context,
        w("attention output", "h", "h"),
        TOKENS,
        "attention output",
        w("attention output bias", "h"),
    )
    return op.dropout(tape, out)


def mlp(tape: Tape, x: Tensor, w: Weights) -> Tensor:
    """The feed-forward layer with its dropout."""
    x = op.linear(tape, x, w("up", "h", "f"), WIDE, "up", w("up bias", "f"))
    x = gelu_new(tape, x)
    x = op.linear(tape, x, w("down", "f", "h"), TOKENS, "down", w("down bias", "h"))
    return op.dropout(tape, x)


def layer(
    tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: tuple[Tensor | None, ...]
) -> Tensor:
    """One block."""
    residual = x
    x = op.layer_norm(tape, x, w("attention norm", "h"), w("attention norm bias", "h"), ROWS)
    attended = attention(tape, x, w, structure, shared[2])
    x = op.add(tape, attended, residual, "residual stream")
    residual = x
    x = op.layer_norm(tape, x, w("mlp norm", "h"), w("mlp norm bias", "h"), ROWS)
    made = mlp(tape, x, w)
    return op.add(tape, residual, made, "residual stream")
