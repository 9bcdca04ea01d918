"""Megatron's multi-head latent attention on one of the GPUs that share it, operation by operation.

Megatron-Core 0.16, core/transformer/multi_latent_attention.py (``MLASelfAttention``) with norms of
the latents and the fused kernels of core/fusions/fused_mla_yarn_rope_apply.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ..autograd import operations as op
from ..autograd.operations import context
from ..autograd.operations import experts as moe
from ..autograd.operations import transformer_engine as te
from ..autograd.tape import Tape
from ..autograd.tensors import Grads, Tensor
from ..autograd.weights import Weights
from ..formula import Formula, product, total
from .sizes import HEAD_ROWS, QUERIES, TOKENS

#: The latents of a GPU's own tokens, and the part of the keys that positions turn.
QUERY_LATENTS, LATENTS = product(("z", "b", "q")), product(("z", "b", "l"))
OWN_PART, PART = product(("z", "b", "E")), product(("s", "b", "E"))
#: The same of all tokens, where these are split between the GPUs.
ALL_QUERY_LATENTS, ALL_LATENTS = product(("s", "b", "q")), product(("s", "b", "l"))
VALUES = product(("s", "b", "a", "v"))
#: What keys and values are made of: the part that is not turned, and the values.
KEYS_AND_VALUES = total((QUERIES, VALUES, product((-1, "s", "b", "a", "E"))))

Core = Callable[[Tensor, Tensor, Tensor], Tensor]


def latent_attention(
    tape: Tape,
    x: Tensor,
    w: Weights,
    rows: Formula,
    *,
    queries: bool,
    split: bool,
    twice: Callable[[Core, Tensor, Tensor, Tensor], Tensor],
    exchange: str = "none",
) -> Tensor:
    """From a layer's input to its attention's output before it is projected.

    ``queries`` have latents too; where the tokens are ``split`` between the GPUs, what is made of
    latents is gathered. ``twice`` runs the core, again in the backward pass where that is asked;
    ``exchange`` is how GPUs that share a sequence do.
    """
    x = op.rms_norm(tape, x, w("attention norm", "h"), rows)
    latents = None
    if queries:
        weight = w("query latents", "q", "h")
        latents = te.linear_and_scatter(tape, x, weight, QUERY_LATENTS, "query latents")
    both = te.linear_and_scatter(
        tape, x, w.of("latents", DOWN_WEIGHTS), total((LATENTS, OWN_PART)), "latents"
    )
    compressed, part = op.split(tape, both, (LATENTS, OWN_PART))
    del both
    if split:
        part = _gathered_part(tape, part)
    q, k, v = _made(tape, x, w, rows, (latents, compressed, part), split=split)
    del part

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if exchange != "none":
            return context.WAYS[exchange](tape, q, k, v, HEAD_ROWS, VALUES)
        return te.attention_kernel(tape, q, k, v, VALUES, HEAD_ROWS)

    seen = twice(core, q, k, v)
    del q, k, v, latents, compressed
    return seen


def _made(
    tape: Tape,
    x: Tensor,
    w: Weights,
    rows: Formula,
    found: tuple[Tensor | None, Tensor, Tensor],
    *,
    split: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """``qkv_up_proj_and_rope_apply``."""
    latents, compressed, part = found
    if latents:
        q = te.norm_and_linear(
            tape,
            latents,
            w("query latent norm", "q"),
            w("queries", "a", "e", "q"),
            rows,
            QUERIES,
            "queries",
            gathered=ALL_QUERY_LATENTS if split else None,
        )
    else:
        gathered = TOKENS if split else None
        q = moe.column_linear(tape, x, w("queries", "a", "e", "h"), QUERIES, "queries", gathered)
    both = te.norm_and_linear(
        tape,
        compressed,
        w("latent norm", "l"),
        w.of("keys and values", UP_WEIGHTS),
        rows,
        KEYS_AND_VALUES,
        "keys and values",
        gathered=ALL_LATENTS if split else None,
    )
    # Queries are turned where they are.
    k, v = _turned(tape, both, part)
    return op.view(tape, q), k, v


def _turned(tape: Tape, both: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    """``ApplyMLARotaryEmbKV``: every head's key gets the turned part that all share."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor, Tensor]:
        return (
            tape.new("gradient of keys and values", KEYS_AND_VALUES, "bf16"),
            tape.new("gradient of the turned part", PART, "bf16"),
        )

    node = tape.node("rope", [both, part], backward, outputs=2)
    made = tape.new("keys", QUERIES, "bf16"), tape.new("values", VALUES, "bf16")
    tape.attach(node, *made)
    return made


def _gathered_part(tape: Tape, part: Tensor) -> Tensor:
    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of the part to turn, scattered", OWN_PART, "bf16"),)

    node = tape.node("gather", [part], backward)
    y = tape.new("part to turn, of all tokens", PART, "bf16")
    tape.new("part to turn, side by side", OWN_PART, "bf16")
    tape.attach(node, y)
    return y


DOWN_WEIGHTS = total((product(("l", "h")), product(("E", "h"))))
UP_WEIGHTS = total(
    (product(("a", "e", "l")), product(("a", "v", "l")), product((-1, "a", "E", "l")))
)
