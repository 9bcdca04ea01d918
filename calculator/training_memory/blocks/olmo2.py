"""Hugging Face's OLMo 2, operation by operation: norms follow attention and feed-forward layer.

Follows ``transformers`` 5.24, models/olmo2/modeling_olmo2.py.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..structure import Structure
from .attention import Attended, attend
from .llama import mlp, projected_back, straight
from .rms import norm
from .rotary import rotated
from .shared import Shared


def attention(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Attended:
    """Self-attention, with one norm of all heads' queries and one of all keys."""
    with tape.module("attention"):
        q = _projected_and_normed(tape, x, w, structure, "query", "a")
        k = _projected_and_normed(tape, x, w, structure, "key", "g")
        v = straight(tape, x, w, structure, "value")
        one = structure.one_key_head
        q = op.heads(tape, q)
        k, v = op.heads(tape, k, one=one), op.heads(tape, v, one=one)
        q, k = _both_rotated(tape, q, k, shared)
        context, weights = attend(tape, q, k, v, structure, shared.held)
        return projected_back(tape, context, w, structure), weights


def _projected_and_normed(
    tape: Tape, x: Tensor, w: Weights, structure: Structure, name: str, heads: str
) -> Tensor:
    """Queries or keys, all heads of them normalised together."""
    made = straight(tape, x, w, structure, name)  # held until the norm's module returns
    return norm(tape, made, w(f"{name} norm", heads, "e"), structure)


def _both_rotated(tape: Tape, q: Tensor, k: Tensor, shared: Shared) -> tuple[Tensor, Tensor]:
    """``apply_rotary_pos_emb``: with tables in fp32, and so is what it makes, to the end."""
    assert shared.turn is not None
    turned_q, turned_k = rotated(tape, q, shared.turn), rotated(tape, k, shared.turn)
    return op.cast(tape, turned_q, q.dtype, "queries"), op.cast(tape, turned_k, k.dtype, "keys")


def layer(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Tensor:
    """One decoder layer."""
    residual = x
    x, _ = attention(tape, x, w, structure, shared)
    with tape.module("attention norm"):
        x = norm(tape, x, w("attention norm", "h"), structure)
    x = op.add(tape, residual, x, "residual stream")
    residual = x
    x = mlp(tape, x, w, structure)
    with tape.module("mlp norm"):
        x = norm(tape, x, w("mlp norm", "h"), structure)
    return op.add(tape, residual, x, "residual stream")
