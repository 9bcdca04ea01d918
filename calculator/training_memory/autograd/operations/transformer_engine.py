"""Operations as Transformer Engine and Megatron fuse them, on one of the GPUs that share a layer.

Transformer Engine 2.11: pytorch/module/layernorm_linear.py, pytorch/module/linear.py,
pytorch/attention/. Megatron-Core 0.16: core/tensor_parallel/layers.py, core/fusions/. A product's
gradient of its weight is added to the weight's main gradient in place; what arrives at the weight
instead says nothing and is one tensor for all weights of its shape, which is there from step to
step.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula, as_formula
from ..tape import Save, Tape
from ..tensors import Grads, Parameter, Tensor
from .common import ARGUMENT, ATTENTION, INPUT, NORM, RANDOM, like, only, passed

#: Numbers of the random generator's state.
STATE = as_formula(2)


def norm_and_linear(
    tape: Tape,
    x: Tensor,
    scale: Parameter,
    weight: Parameter,
    rows: Formula,
    numel: Formula,
    name: str,
    *,
    gathered: Formula | None = None,
    bias: Parameter | None = None,
) -> Tensor:
    """``LayerNormLinear``: saves its input, what the norm makes of it, and the inverse root.

    Where the tokens are split between the GPUs, ``gathered`` are the numbers of all of them: the
    norm's output is gathered for the product, in forward and again in backward, and not kept.
    """
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        total = tape.new("norm output, gathered", gathered, dtype) if gathered else None
        of_total = tape.new(f"gradient of {name}'s input", gathered or own, dtype)
        of_normed = of_total
        if gathered:
            of_normed = tape.new(f"gradient of {name}'s input, scattered", own, dtype)
        del total, of_total
        of_x = tape.new("gradient of a norm's input", own, dtype)
        of_scale = tape.new(f"gradient of {scale.name}", scale.numel, dtype)
        of_bias = tape.new(f"gradient of {bias.name}", bias.numel, dtype) if bias else None
        del of_normed
        return of_x, of_scale, None, of_bias

    kept: list[Save] = [(x, NORM), (scale, NORM), (weight, INPUT)]
    node = tape.node("norm and linear", [x, scale, weight, bias], backward, kept)
    normed = tape.new("norm output", own, dtype)
    spread = tape.new("norm's inverse root", rows, "fp32")
    total = tape.new("norm output, gathered", gathered, dtype) if gathered else None
    z = tape.new(name, numel, dtype)
    del total
    tape.attach(node, z, saves=[(normed, INPUT), (spread, NORM)])
    return z


def linear_and_scatter(
    tape: Tape,
    x: Tensor,
    weight: Parameter,
    numel: Formula,
    name: str,
    *,
    scattered: Formula | None = None,
) -> Tensor:
    """``Linear`` whose GPUs each hold some columns: saves its input; the outputs are summed.

    Where the tokens are split between the GPUs, each gets the sum for its own, ``scattered``
    numbers; the gradient is gathered first.
    """
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        total = tape.new(f"gradient of {name}, gathered", numel, dtype) if scattered else None
        of_x = tape.new(f"gradient of {name}'s input", own, dtype)
        del total
        return of_x, None

    node = tape.node("linear", [x, weight], backward, [(x, INPUT), (weight, INPUT)])
    z = tape.new(name, numel, dtype)
    if scattered:
        z = tape.new(f"{name}, scattered", scattered, dtype)
    tape.attach(node, z)
    return z


def copied(tape: Tape, x: Tensor, name: str) -> Tensor:
    """``x.contiguous()`` of a part of a tensor: a copy."""
    node = tape.node("clone", [x], passed)
    y = tape.new(name, x.numel, x.dtype)
    tape.attach(node, y)
    return y


def rope(tape: Tape, x: Tensor, name: str) -> Tensor:
    """``FusedRoPEFunc``: one kernel, which reads the angles that all layers share."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), "gradient turned back"),)

    node = tape.node("rope", [x], backward)
    y = tape.new(name, x.numel, x.dtype)
    tape.attach(node, y)
    return y


def attention_kernel(
    tape: Tape, q: Tensor, k: Tensor, v: Tensor, numel: Formula, log_sum_exp: Formula
) -> Tensor:
    """The fused attention of cuDNN: saves q, k, v, its output, a number a row, a random state."""
    sizes = [("queries", q.numel), ("keys", k.numel), ("values", v.numel)]
    dtype = q.dtype

    def backward(tape: Tape, grads: Grads) -> list[Tensor | None]:
        return [tape.new(f"gradient of {name}", size, dtype) for name, size in sizes]

    node = tape.node("attention", [q, k, v], backward, [(one, ATTENTION) for one in (q, k, v)])
    z = tape.new("attention output", numel, dtype)
    sums = tape.new("log-sum-exp", log_sum_exp, "fp32")
    state = tape.new("random state", STATE, "int64")
    tape.attach(node, z, saves=[(z, ATTENTION), (sums, ATTENTION), (state, RANDOM)])
    return z


def activated(tape: Tape, x: Tensor, numel: Formula, name: str) -> Tensor:
    """``SwiGLUFunction``, ``GeLUFunction``: saves its input alone; back, one kernel again."""
    inner, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new(f"gradient before the {name}", inner, dtype),)

    node = tape.node("activation", [x], backward, [(x, ARGUMENT)])
    y = tape.new(name, numel, dtype)
    tape.attach(node, y)
    return y


def head(
    tape: Tape,
    x: Tensor,
    weight: Parameter,
    numel: Formula,
    *,
    gathered: Formula | None = None,
) -> Tensor:
    """``ColumnParallelLinear``: saves its input; all tokens meet in a buffer of its own."""
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        of_total = tape.new("gradient of the head's input", gathered or own, dtype)
        of_x = of_total
        if gathered:
            of_x = tape.new("gradient of the head's input, scattered", own, dtype)
        del of_total
        return of_x, None

    node = tape.node("linear", [x, weight], backward, [(x, INPUT), (weight, INPUT)])
    if node:
        node.logits = False
    z = tape.new("logits", numel, dtype)
    tape.attach(node, z)
    return z
