"""Hugging Face's Gemma 2 and Gemma 3, operation by operation.

Follows ``transformers`` 5.24: models/gemma2/modeling_gemma2.py, models/gemma3/modeling_gemma3.py.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..structure import Structure
from .attention import Attended, attend
from .llama import both_rotated, mlp, projected, projected_back
from .rms import norm
from .shared import Shared
from .sizes import HEAD_ROWS, KEY_HEAD_ROWS


def attention(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Attended:
    """Self-attention; Gemma 3 has a norm of each head's queries and keys, once all are heads."""
    with tape.module("attention"):
        q, k, v = (projected(tape, x, w, structure, name) for name in ("query", "key", "value"))
        if structure.family == "gemma3":
            q = norm(tape, q, w("query norm", "e"), structure, HEAD_ROWS)
            k = norm(tape, k, w("key norm", "e"), structure, KEY_HEAD_ROWS)
        q, k = both_rotated(tape, q, k, shared)
        context, weights = attend(tape, q, k, v, structure, shared.held)
        return projected_back(tape, context, w, structure), weights


def layer(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Tensor:
    """One decoder layer, with a norm before and after each of its halves."""
    residual = x
    with tape.module("attention norm"):
        x = norm(tape, x, w("attention norm", "h"), structure)
    x, _ = attention(tape, x, w, structure, shared)
    with tape.module("attention output norm"):
        x = norm(tape, x, w("attention output norm", "h"), structure)
    x = op.add(tape, residual, x, "residual stream")
    residual = x
    with tape.module("mlp norm"):
        x = norm(tape, x, w("mlp norm", "h"), structure)
    x = mlp(tape, x, w, structure)
    with tape.module("mlp output norm"):
        x = norm(tape, x, w("mlp output norm", "h"), structure)
    return op.add(tape, residual, x, "residual stream")
