"""Attention proper, from queries, keys and values to the context, as Hugging Face offers it."""

from __future__ import annotations

from collections.abc import Callable

from ..autograd import operations as op
from ..autograd.tape import Tape, Tensor
from ..structure import Structure
from .sizes import CAUSAL, HEAD_ROWS, QUERIES, SCORES


def attend(
    tape: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    structure: Structure,
    *,
    drops: bool = False,
) -> Tensor:
    """The context; with selective recomputation this alone is run again in the backward pass."""

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _kernel(structure)(tape, q, k, v, mask, structure, drops=drops)

    if structure.recompute == "selective":
        return tape.checkpoint(core, q, k, v)
    return core(q, k, v)


def _kernel(structure: Structure) -> Callable[..., Tensor]:
    if structure.attention == "eager":
        return eager
    # The fused kernels take no fp32 queries that share keys; PyTorch then falls back to plain
    # operations (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
    if structure.grouped and structure.weights == "fp32" and not structure.autocast:
        return _math
    return _fused


def _fused(
    tape: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    structure: Structure,
    *,
    drops: bool,
) -> Tensor:
    """``F.scaled_dot_product_attention`` by FlashAttention, or in fp32 by the efficient kernel."""
    return op.attention(tape, q, k, v, HEAD_ROWS)


def _math(
    tape: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    structure: Structure,
    *,
    drops: bool,
) -> Tensor:
    """``_scaled_dot_product_attention_math``: plain operations, heads repeated, scores kept."""
    causal = tape.new("causal mask", CAUSAL, "bool")
    bias = tape.new("causal bias", CAUSAL, q.dtype)
    del causal
    k, v = _repeated(tape, k, structure, "keys"), _repeated(tape, v, structure, "values")
    q, k = op.scale(tape, q, "queries scaled"), op.scale(tape, k, "keys scaled")
    scores = op.matmul(tape, _flat(tape, q, structure), _flat(tape, k, structure), SCORES, "scores")
    scores = op.add_small(tape, scores, "masked scores")
    weights = op.softmax(tape, scores)
    del bias
    return op.matmul(tape, weights, _flat(tape, v, structure), QUERIES, "context")


def eager(
    tape: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    structure: Structure,
    *,
    drops: bool,
) -> Tensor:
    """``eager_attention_forward``: every score in memory, softmax in fp32."""
    k, v = _repeated(tape, k, structure, "keys"), _repeated(tape, v, structure, "values")
    weights = _scores(tape, q, k, structure)
    weights = op.add_small(tape, weights, "masked scores")
    # GPT-2's softmax stays in the scores' dtype, Llama's is asked to be in fp32.
    weights = op.softmax(tape, weights, None if structure.family == "gpt2" else "fp32")
    weights = op.to(tape, weights, v.dtype if structure.family == "gpt2" else q.dtype)
    if drops:
        weights = op.dropout(tape, weights)
    context = _multiplied(tape, weights, v, structure, "context")
    return op.copied(tape, context.view(heads_apart=True), "context in token order")


def _scores(tape: Tape, q: Tensor, k: Tensor, structure: Structure) -> Tensor:
    return op.scale(tape, _multiplied(tape, q, k, structure, "scores"), "scaled scores")


def _multiplied(tape: Tape, x: Tensor, y: Tensor, structure: Structure, name: str) -> Tensor:
    if tape.autocast:
        x, y = op.to(tape, x, "bf16"), op.to(tape, y, "bf16")
    numel = SCORES if name == "scores" else QUERIES
    return op.matmul(tape, _flat(tape, x, structure), _flat(tape, y, structure), numel, name)


def _flat(tape: Tape, x: Tensor, structure: Structure) -> Tensor:
    """Batch and heads as one dimension, which copies unless there is one sequence."""
    if x.heads_apart and not structure.one_sequence:
        return op.copied(tape, x, "heads joined with the batch")
    return x


def _repeated(tape: Tape, x: Tensor, structure: Structure, name: str) -> Tensor:
    """``repeat_kv``: a copy for every query head that shares a key head."""
    return op.expanded_copy(tape, x, QUERIES, f"{name} repeated") if structure.grouped else x
