"""Hugging Face's Llama family, operation by operation: Llama, Mistral, Qwen2, Qwen3, OLMo 2.

Follows ``transformers`` 5.24, models/llama/modeling_llama.py and its siblings: the same operations
on the same variables in the same order, since what a variable still holds is memory. Where a
sibling differs (a norm of queries and keys, norms after instead of before), the structure says so.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Parameter, Tape, Tensor
from ..autograd.weights import Weights
from ..formula import Formula
from ..structure import Structure
from .attention import attend
from .sizes import HEAD_ROWS, KEY_HEAD_ROWS, KEYS, QUERIES, ROWS, TOKENS, WIDE


def rms_norm(tape: Tape, x: Tensor, weight: Parameter, rows: Formula = ROWS) -> Tensor:
    """LlamaRMSNorm: in fp32, back to the input's dtype, times the scale."""
    dtype = x.dtype
    x = op.to(tape, x, "fp32", "norm input")
    variance = op.mean(tape, op.square(tape, x), rows)
    x = op.multiply(tape, x, op.rsqrt(tape, op.add_small(tape, variance)), "normalised")
    return op.multiply(tape, op.to(tape, x, dtype, "normalised"), weight, "norm output")


def _rotated_half(tape: Tape, x: Tensor) -> Tensor:
    first = op.part(tape, x, x.numel / 2)
    second = op.part(tape, x, x.numel / 2)
    return op.joined(tape, [op.negate(tape, second), first], "half rotated")


def _rotated(tape: Tape, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of queries or keys."""
    turned = op.add(
        tape,
        op.multiply(tape, x, cos, "times cosine"),
        op.multiply(tape, _rotated_half(tape, x), sin, "times sine"),
        "rotated",
    )
    return turned.view(heads_apart=True)


def _projected(
    tape: Tape, x: Tensor, w: Weights, structure: Structure, name: str, heads: str, numel: Formula
) -> Tensor:
    bias = w.optional(structure.qkv_bias, f"{name} bias", heads, "e")
    made = op.linear(tape, x, w(name, heads, "e", "h"), numel, name, bias)
    if structure.qk_norm == "full" and name != "value":
        made = rms_norm(tape, made, w(f"{name} norm", heads, "e"))
    if structure.qk_norm == "head" and name != "value":
        rows = HEAD_ROWS if heads == "a" else KEY_HEAD_ROWS
        made = rms_norm(tape, made, w(f"{name} norm", "e"), rows)
    return made.view(heads_apart=True)


def attention(
    tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: tuple[Tensor | None, ...]
) -> Tensor:
    """Self-attention with rotary positions."""
    cos, sin, mask = shared
    assert cos is not None
    assert sin is not None
    q = _projected(tape, x, w, structure, "query", "a", QUERIES)
    k = _projected(tape, x, w, structure, "key", "g", KEYS)
    v = _projected(tape, x, w, structure, "value", "g", KEYS)
    q, k = _rotated(tape, q, cos, sin), _rotated(tape, k, cos, sin)
    context = attend(tape, q, k, v, mask, structure)
    bias = w.optional(structure.output_bias, "attention output bias", "h")
    weight = w("attention output", "h", "a", "e")
    return op.linear(tape, context, weight, TOKENS, "attention output", bias)


def mlp(tape: Tape, x: Tensor, w: Weights, structure: Structure) -> Tensor:
    """The gated feed-forward layer: down(act(gate(x)) · up(x))."""

    def widened(name: str) -> Tensor:
        bias = w.optional(structure.mlp_bias, f"{name} bias", "f")
        return op.linear(tape, x, w(name, "f", "h"), WIDE, name, bias)

    activate = op.silu if structure.activation == "silu" else op.gelu
    inner = op.multiply(tape, activate(tape, widened("gate")), widened("up"), "gated")
    bias = w.optional(structure.mlp_bias, "down bias", "h")
    return op.linear(tape, inner, w("down", "h", "f"), TOKENS, "down", bias)


def layer(
    tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: tuple[Tensor | None, ...]
) -> Tensor:
    """One decoder layer."""
    if structure.post_norm:
        return _layer_normed_after(tape, x, w, structure, shared)
    residual = x
    x = rms_norm(tape, x, w("attention norm", "h"))
    x = attention(tape, x, w, structure, shared)
    x = op.add(tape, residual, x, "residual stream")
    residual = x
    x = rms_norm(tape, x, w("mlp norm", "h"))
    x = mlp(tape, x, w, structure)
    return op.add(tape, residual, x, "residual stream")


def _layer_normed_after(
    tape: Tape, x: Tensor, w: Weights, structure: Structure, shared: tuple[Tensor | None, ...]
) -> Tensor:
    residual = x
    x = attention(tape, x, w, structure, shared)
    x = rms_norm(tape, x, w("attention norm", "h"))
    x = op.add(tape, residual, x, "residual stream")
    residual = x
    x = mlp(tape, x, w, structure)
    x = rms_norm(tape, x, w("mlp norm", "h"))
    return op.add(tape, residual, x, "residual stream")
