"""Operations as Transformer Engine and Megatron fuse them, on one of the GPUs that share a layer.

Transformer Engine 2.11: pytorch/module/layernorm_linear.py, pytorch/module/linear.py,
pytorch/attention/. Megatron-Core 0.16: core/tensor_parallel/layers.py, core/fusions/. A product's
gradient of its weight is added to the weight's main gradient in place; what arrives at the weight
instead says nothing and is one tensor for all weights of its shape, which is there from step to
step.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula, as_formula, total
from ..tape import Save, Tape
from ..tensors import Grads, Parameter, Tensor
from .common import ARGUMENT, ATTENTION, INPUT, MASK, NORM, RANDOM, like, only, passed

#: Numbers of the random generator's state.
STATE = as_formula(2)
ONE, NOTHING = as_formula(1), as_formula(0)


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
    shift: Parameter | None = None,
) -> Tensor:
    """``LayerNormLinear``: saves its input, what the norm makes of it, and the inverse root.

    A LayerNorm has a ``shift``, and saves the mean as well. Where the tokens are split between the
    GPUs, ``gathered`` are the numbers of all of them: the norm's output is gathered for the
    product, in forward and again in backward, and not kept.
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
        of_scale, of_shift, of_bias = (
            tape.new(f"gradient of {one.name}", one.numel, dtype) if one else None
            for one in (scale, shift, bias)
        )
        del of_normed
        return of_x, of_scale, of_shift, None, of_bias

    kept: list[Save] = [(x, NORM), (scale, NORM), (weight, INPUT)]
    node = tape.node("norm and linear", [x, scale, shift, weight, bias], backward, kept)
    normed = tape.new("norm output", own, dtype)
    spreads = ("mean", "inverse deviation") if shift else ("inverse root",)
    spread = [tape.new(f"norm's {one}", rows, "fp32") for one in spreads]
    total = tape.new("norm output, gathered", gathered, dtype) if gathered else None
    z = tape.new(name, numel, dtype)
    del total
    tape.attach(node, z, saves=[(normed, INPUT), *((one, NORM) for one in spread)])
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


def split_along_dim(tape: Tape, x: Tensor, numels: Sequence[Formula]) -> list[Tensor]:
    """``SplitAlongDim``: views; gradients that lie together already are one without a copy."""
    parts = [x.part(numel) for numel in numels]
    whole, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        first = only(grads)
        if all(one and one.storage is first.storage for one in grads):
            return (first.part(whole),)
        return (tape.new("gradients joined", whole, dtype),)

    tape.attach(tape.node("split", [x], backward, outputs=len(parts)), *parts)
    return parts


def rope(tape: Tape, x: Tensor, name: str) -> Tensor:
    """``FusedRoPEFunc``: one kernel, which reads the angles that all layers share."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), "gradient turned back"),)

    node = tape.node("rope", [x], backward)
    y = tape.new(name, x.numel, x.dtype)
    tape.attach(node, y)
    return y


def attention_kernel(
    tape: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    numel: Formula,
    log_sum_exp: Formula,
) -> Tensor:
    """The fused attention of cuDNN: saves q, k, v, its output, a number a row, a random state.

    Where the three lie in one tensor, head by head (the layout ``sbh3d``), so do their gradients.
    """
    sizes = [("queries", q.numel), ("keys", k.numel), ("values", v.numel)]
    dtype, together = q.dtype, q.storage is k.storage is v.storage

    def backward(tape: Tape, grads: Grads) -> list[Tensor | None]:
        if together:
            name, whole = "gradients of queries, keys and values", total(size for _, size in sizes)
            joint = tape.new(name, whole, dtype)
            return [joint.part(size) for _, size in sizes]
        return [tape.new(f"gradient of {name}", size, dtype) for name, size in sizes]

    node = tape.node("attention", [q, k, v], backward, [(one, ATTENTION) for one in (q, k, v)])
    z = tape.new("attention output", numel, dtype)
    sums = tape.new("log-sum-exp", log_sum_exp, "fp32")
    state = tape.new("random state", STATE, "int64")
    tape.attach(node, z, saves=[(z, ATTENTION), (sums, ATTENTION), (state, RANDOM)])
    return z


def activated(
    tape: Tape, x: Tensor, numel: Formula, name: str, bias: Parameter | None = None
) -> Tensor:
    """``SwiGLUFunction``, ``GeLUFunction``: saves its input alone; back, one kernel again.

    A ``bias`` is added in the same kernel; its gradient is the input's, summed.
    """
    inner, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor, Tensor | None]:
        made = tape.new(f"gradient before the {name}", inner, dtype)
        grads.clear()  # a function of Megatron's own has dropped it before the bias's is summed
        return made, made if bias else None

    node = tape.node("activation", [x, bias], backward, [(x, ARGUMENT)])
    y = tape.new(name, numel, dtype)
    tape.attach(node, y)
    return y


def bias_dropout_add(
    tape: Tape,
    x: Tensor,
    bias: Parameter | None,
    residual: Tensor,
    *,
    drops: bool,
    masks: list[Tensor],
) -> Tensor:
    """``bias_dropout_add_fused_train``, one kernel by torch.compile: keeps a mask if it drops.

    What the compiler's graphs hand on and give back is PyTorch's own word (AOTAutograd with
    Inductor's decompositions, 2.13): one byte an element, and nothing where it drops nothing.
    Megatron wants its gradient even where nothing else has one: ``masks`` holds the mask then.
    """
    dtype = x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor, Tensor | None, Tensor]:
        given = only(grads)
        of_x = like(tape, given, "gradient before the dropout") if drops else given
        of_bias = tape.new(f"gradient of {bias.name}", bias.numel, dtype) if bias else None
        return of_x, of_bias, given

    node = tape.node("bias, dropout and add", [x, bias, residual], backward)
    seed = tape.new("seed", ONE, "int64") if drops else None
    z = like(tape, residual, "residual stream")
    kept = [like(tape, x, "dropout mask", "bool")] if drops else []
    del seed
    tape.attach(node, z, saves=[(mask, MASK) for mask in kept])
    if node is None:
        masks += kept
    return z


def head(
    tape: Tape,
    x: Tensor,
    weight: Parameter,
    numel: Formula,
    *,
    gathered: Formula | None = None,
    shared: bool = False,
) -> Tensor:
    """``ColumnParallelLinear``: saves its input; all tokens meet in a buffer of its own.

    Where the weight is ``shared`` with the embedding the gradient that says nothing is zeros, and
    the embedding's is added to it.
    """
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        of_total = tape.new("gradient of the head's input", gathered or own, dtype)
        of_x = of_total
        if gathered:
            of_x = tape.new("gradient of the head's input, scattered", own, dtype)
        del of_total
        # It is there from step to step.
        zeros = tape.new("zeros", NOTHING, dtype).view(numel=weight.numel) if shared else None
        return of_x, zeros

    node = tape.node("linear", [x, weight], backward, [(x, INPUT), (weight, INPUT)])
    if node:
        node.logits = False
    z = tape.new("logits", numel, dtype)
    tape.attach(node, z)
    return z
