"""Hugging Face's Llama, Mistral, Mixtral, Qwen2 and Qwen3, operation by operation.

Follows ``transformers`` 5.24, models/llama/modeling_llama.py and its siblings: the same operations
on the same variables in the same order, since what a variable still holds is memory. Where a
sibling differs (a norm of queries and keys, experts), the structure says so.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..structure import Structure
from . import parallel, rms
from .attention import Attended, attend
from .mixture import mixture
from .rotary import rotated
from .shared import Shared
from .sizes import HEAD_ROWS, KEY_HEAD_ROWS, KEYS, QUERIES, TOKENS, WIDE


def straight(tape: Tape, x: Tensor, w: Weights, structure: Structure, name: str) -> Tensor:
    """Queries, keys or values, as the projection writes them."""
    count, numel = ("a", QUERIES) if name == "query" else ("g", KEYS)
    bias = w.optional(structure.qkv_bias, f"{name} bias", count, "e")
    x = parallel.by_columns(tape, x, structure, name)
    return op.linear(tape, x, w(name, count, "e", "h"), numel, name, bias)


def projected(tape: Tape, x: Tensor, w: Weights, structure: Structure, name: str) -> Tensor:
    """The same as heads."""
    one = structure.one_key_head and name != "query"
    return op.heads(tape, straight(tape, x, w, structure, name), one=one)


def _projected_and_normed(
    tape: Tape, x: Tensor, w: Weights, structure: Structure, name: str
) -> Tensor:
    """Qwen3's queries and keys, each head of them normalised."""
    if structure.qk_norm != "head":
        return projected(tape, x, w, structure, name)
    rows = HEAD_ROWS if name == "query" else KEY_HEAD_ROWS
    made = projected(tape, x, w, structure, name)  # held until the norm's module returns
    return rms.norm(tape, made, w(f"{name} norm", "e"), structure, rows)


def attention(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Attended:
    """Self-attention with rotary positions."""
    with tape.module("attention"):
        q = _projected_and_normed(tape, x, w, structure, "query")
        k = _projected_and_normed(tape, x, w, structure, "key")
        v = projected(tape, x, w, structure, "value")
        q, k = both_rotated(tape, q, k, shared)
        context, weights = attend(tape, q, k, v, structure, shared.held)
        return projected_back(tape, context, w, structure), weights


def both_rotated(tape: Tape, q: Tensor, k: Tensor, shared: Shared) -> tuple[Tensor, Tensor]:
    """``apply_rotary_pos_emb``."""
    assert shared.turn is not None
    turned_q = rotated(tape, q, shared.turn)
    turned_k = rotated(tape, k, shared.turn)
    return turned_q, turned_k


def projected_back(tape: Tape, context: Tensor, w: Weights, structure: Structure) -> Tensor:
    """The output projection."""
    bias = w.optional(structure.output_bias, "attention output bias", "h")
    weight = w("attention output", "h", "a", "e")
    out = op.linear(tape, context, weight, TOKENS, "attention output", bias)
    return parallel.by_rows(tape, out, structure, "attention output")


def mlp(tape: Tape, x: Tensor, w: Weights, structure: Structure) -> Tensor:
    """The gated feed-forward layer: down(act(gate(x)) · up(x))."""

    def widened(name: str) -> Tensor:
        bias = w.optional(structure.mlp_bias, f"{name} bias", "f")
        given = parallel.by_columns(tape, x, structure, name)
        return op.linear(tape, given, w(name, "f", "h"), WIDE, name, bias)

    with tape.module("mlp"):
        if structure.fused_mlp:
            inner = op.gated(tape, widened("gate"), widened("up"))
        else:
            activate = op.silu if structure.activation == "silu" else op.gelu
            inner = op.multiply(tape, activate(tape, widened("gate")), widened("up"), "gated")
        bias = w.optional(structure.mlp_bias, "down bias", "h")
        out = op.linear(tape, inner, w("down", "h", "f"), TOKENS, "down", bias)
        return parallel.by_rows(tape, out, structure, "down")


def layer(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Tensor:
    """One decoder layer."""
    residual = x
    with tape.module("attention norm"):
        x = rms.norm(tape, x, w("attention norm", "h"), structure)
    x, _ = attention(tape, x, w, structure, shared)
    x = op.add(tape, residual, x, "residual stream")
    residual = x
    with tape.module("mlp norm"):
        x = rms.norm(tape, x, w("mlp norm", "h"), structure)
    x = (mixture if structure.experts else mlp)(tape, x, w, structure)
    return op.add(tape, residual, x, "residual stream")
