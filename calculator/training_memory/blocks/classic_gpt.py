"""The GPT of Korthikanti et al. 2022 (arXiv:2205.05198, figure 2), in plain PyTorch.

Pre-LayerNorm, biases, one projection for queries, keys and values, three dropouts a layer, GELU in
one operation, a feed-forward width of its own, learned positions, the head tied to the embedding.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..structure import Structure
from .attention import batched_product, fused
from .shared import Shared
from .sizes import QUERIES, ROWS, TOKENS, WIDE


def attention(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Tensor:
    """Causal attention."""
    with tape.module("attention"):
        name = "query, key and value"
        joint = op.linear(
            tape, x, w(name, 3, "h", "h"), 3 * TOKENS, name, w(f"{name} bias", 3, "h")
        )
        q, k, v = (op.heads(tape, part) for part in op.split(tape, joint, [QUERIES] * 3))
        del joint

        def core(q: Tensor, k: Tensor, v: Tensor, held: object = shared.held) -> Tensor:
            if structure.kernel != "eager":
                return fused(tape, q, k, v, structure, copies=False)
            return _eager(tape, q, k, v, structure)

        seen = (
            tape.checkpoint(core, q, k, v) if structure.recompute == "selective" else core(q, k, v)
        )
        name = "attention output"
        weights = w(name, "h", "h"), TOKENS, name, w(f"{name} bias", "h")
        return op.linear(tape, op.by_tokens(tape, seen, "context in token order"), *weights)


def _eager(tape: Tape, q: Tensor, k: Tensor, v: Tensor, structure: Structure) -> Tensor:
    scores = op.scale(tape, batched_product(tape, q, k, structure, "scores"), "scaled scores")
    return batched_product(
        tape,
        op.dropout(tape, _softmax(tape, op.add_number(tape, scores, "masked scores"))),
        v,
        structure,
        "context",
    )


def _softmax(tape: Tape, scores: Tensor) -> Tensor:
    """``torch.softmax(…)``, which holds its argument while autocast's copy of it is used."""
    return op.softmax(tape, scores)


def _widened(tape: Tape, x: Tensor, w: Weights) -> Tensor:
    with tape.module("mlp"):
        return op.linear(tape, x, w("up", "f", "h"), WIDE, "up", w("up bias", "f"))


def _activated(tape: Tape, x: Tensor) -> Tensor:
    with tape.module("mlp"):
        return op.gelu(tape, x)


def _narrowed(tape: Tape, x: Tensor, w: Weights) -> Tensor:
    with tape.module("mlp"):
        return op.linear(tape, x, w("down", "h", "f"), TOKENS, "down", w("down bias", "h"))


def layer(tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: Shared) -> Tensor:
    """Attention and the feed-forward layer, each after a norm and with a residual."""
    # No variable holds what is in between, as in the original's expressions.
    x = op.add(
        tape,
        x,
        op.dropout(tape, attention(tape, norm(tape, x, w, "attention norm"), w, structure, shared)),
        "residual stream",
    )
    return op.add(
        tape,
        x,
        op.dropout(
            tape,
            _narrowed(tape, _activated(tape, _widened(tape, norm(tape, x, w, "mlp norm"), w)), w),
        ),
        "residual stream",
    )


def norm(tape: Tape, x: Tensor, w: Weights, name: str) -> Tensor:
    """``nn.LayerNorm``."""
    with tape.module(name):
        return op.layer_norm(tape, x, w(name, "h"), w(f"{name} bias", "h"), ROWS)
