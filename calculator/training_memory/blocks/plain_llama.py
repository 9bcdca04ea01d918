"""A plain Llama as torchtitan writes one, operation by operation.

``nn.RMSNorm``, PyTorch's attention kernels with keys and values repeated for grouped queries,
rotary positions by complex numbers, SwiGLU in two operations: torchtitan, models/llama3/model.py,
as of 2025.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..structure import Structure
from . import parallel, rms
from .attention import batched_product, fused
from .llama import mlp, projected, projected_back
from .shared import Shared
from .sizes import CAUSAL, QUERIES, ROTARY


def _rotated(tape: Tape, x: Tensor) -> Tensor:
    """Each pair of a head's features as a complex number, turned; worked out in fp32."""
    pairs = op.cast(tape, x, "fp32", "pairs in fp32")
    return op.cast(tape, op.turned(tape, pairs, ROTARY), x.dtype, "rotated")


def _repeated(tape: Tape, x: Tensor, structure: Structure, name: str) -> Tensor:
    """Each head as often as query heads share it, its memory still in token order."""
    if not structure.grouped:
        return x
    if structure.one_key_head:
        return op.expanded(tape, x, QUERIES)
    return op.expanded_copy(tape, x, QUERIES, f"{name} repeated", order="tokens")


def attention(tape: Tape, x: Tensor, w: Weights, structure: Structure) -> Tensor:
    """Grouped-query causal attention."""
    with tape.module("attention"):
        given = parallel.into(tape, x, structure, "attention input")
        q, k, v = (projected(tape, given, w, structure, name) for name in ("query", "key", "value"))
        q, k = _rotated(tape, q), _rotated(tape, k)
        k, v = _repeated(tape, k, structure, "keys"), _repeated(tape, v, structure, "values")

        def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if structure.kernel != "eager":
                return fused(tape, q, k, v, structure, copies=False)
            return _eager(tape, q, k, v, structure)

        seen = (
            tape.checkpoint(core, q, k, v) if structure.recompute == "selective" else core(q, k, v)
        )
        return projected_back(
            tape, op.by_tokens(tape, seen, "context in token order"), w, structure
        )


def _eager(tape: Tape, q: Tensor, k: Tensor, v: Tensor, structure: Structure) -> Tensor:
    scores = op.scale(tape, batched_product(tape, q, k, structure, "scores"), "scaled scores")
    ones = tape.new("ones", CAUSAL, "bool")
    future = tape.new("future", CAUSAL, "bool")
    del ones
    weights = op.softmax(
        tape,
        op.cast(tape, op.masked(tape, scores, future, "masked scores"), "fp32", "scores in fp32"),
    )
    return batched_product(
        tape, op.cast(tape, weights, q.dtype, "softmax output"), v, structure, "context"
    )


def layer(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Tensor:
    """Attention and the feed-forward layer, each after a norm and with a residual."""
    x = op.add(
        tape,
        x,
        attention(tape, norm(tape, x, w, "attention norm", structure), w, structure),
        "residual stream",
    )
    return op.add(
        tape,
        x,
        _mlp(tape, norm(tape, x, w, "mlp norm", structure), w, structure),
        "residual stream",
    )


def _mlp(tape: Tape, x: Tensor, w: Weights, structure: Structure) -> Tensor:
    # What the module was called with is held until it returns.
    return mlp(tape, parallel.into(tape, x, structure, "mlp input"), w, structure)


def norm(tape: Tape, x: Tensor, w: Weights, name: str, structure: Structure) -> Tensor:
    """``nn.RMSNorm``, or as torchtitan wrote it out before PyTorch had one."""
    with tape.module(name):
        return rms.norm(tape, x, w(name, "h"), structure, parallel.rows(structure))
