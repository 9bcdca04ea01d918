"""Products of matrices: by a weight, and of two batches of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula
from ..memory import WORKING
from ..tape import Save, Tape
from ..tensors import Grads, Parameter, Tensor
from . import adapters
from .common import INPUT, PRODUCT, RUNS, WEIGHT_COPY, like, only
from .views import cast


def as_used(tape: Tape, weight: Parameter) -> Parameter | Tensor:
    """A weight as a matrix multiplication reads it: under autocast a 16-bit copy, made once."""
    if not tape.autocast or weight.dtype == "bf16":
        return weight

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), f"gradient of {weight.name}, cast", weight.dtype),)

    def copied() -> Tensor:
        with tape.as_category(WORKING):
            return tape.new(f"{weight.name}, 16-bit copy", weight.numel, "bf16")

    if not weight.trainable:
        # Autocast remembers copies of what wants a gradient alone (autocast_mode.cpp, cached_cast).
        return copied()

    def make() -> Tensor:
        node = tape.node("to", [weight], backward)
        copy = copied()
        tape.attach(node, copy)
        return copy

    return tape.cast_once(weight, make)


def linear(
    tape: Tape,
    x: Tensor,
    weight: Parameter,
    numel: Formula,
    name: str,
    bias: Parameter | None = None,
) -> Tensor:
    """``F.linear``: saves its input, and under autocast its 16-bit copy of the weight.

    Where the weight has an adapter, with what that adds.
    """
    if not (weight.adapter or weight.packed):
        return _product(tape, x, weight, numel, name, bias)

    def product() -> Tensor:
        if weight.packed:
            return adapters.unpacked_product(tape, x, weight, numel, name, bias)
        return _product(tape, x, weight, numel, name, bias)

    return adapters.adapted(tape, x, product, weight, numel) if weight.adapter else product()


def affine(
    tape: Tape, x: Tensor, weight: Parameter, numel: Formula, name: str, bias: Parameter
) -> Tensor:
    """``torch.addmm``, as GPT-2's Conv1D calls it: the same, with the bias cast first."""

    def product() -> Tensor:
        return _product(tape, x, weight, numel, name, bias, bias_first=True)

    return adapters.adapted(tape, x, product, weight, numel) if weight.adapter else product()


def _product(
    tape: Tape,
    x: Tensor,
    weight: Parameter,
    numel: Formula,
    name: str,
    bias: Parameter | None,
    *,
    bias_first: bool = False,
) -> Tensor:
    # Autocast's wrappers cast their arguments from the last to the first.
    used_bias = as_used(tape, bias) if bias and not bias_first else None
    used = as_used(tape, weight)
    if tape.autocast:
        x = cast(tape, x, "bf16", f"{name}'s input")
    if bias and bias_first:
        used_bias = as_used(tape, bias)
    dtype, order = x.dtype, x.order
    x_numel, wants_x = x.numel, x.edge is not None
    weight_numel, wants_weight = weight.numel, weight.trainable

    def of_x(tape: Tape) -> Tensor | None:
        return tape.new(f"gradient of {name}'s input", x_numel, dtype) if wants_x else None

    def of_weight(tape: Tape) -> Tensor | None:
        return tape.new(f"gradient of {weight.name}", weight_numel, dtype) if wants_weight else None

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        # In the order of the arguments' names: mm's are self and mat2, addmm's mat1, mat2 and self.
        if bias is None:
            weights = of_weight(tape)
            return of_x(tape), weights
        # The bias's gradient is the output's, summed over all rows (validate_outputs).
        inputs = of_x(tape)
        return only(grads), inputs, of_weight(tape)

    saves: list[Save] = [(x, INPUT)] if wants_weight else []
    if wants_x:
        saves.append((used, WEIGHT_COPY))
    factors: list[Tensor | Parameter | None] = [x, used]
    if bias is not None:
        factors.insert(0, used_bias)
    node = tape.node("linear", factors, backward, saves)
    if node:
        node.logits = False
    (z,) = tape.outputs("product", lambda: [tape.new(name, numel, dtype, order)])
    tape.attach(node, z)
    return z


def matmul(
    tape: Tape, x: Tensor, y: Tensor, numel: Formula, name: str, *, transposed: bool
) -> Tensor:
    """``torch.bmm``, two batches of matrices, the second ``transposed`` or not: saves both."""
    dtype = x.dtype
    second_order = "features" if transposed else "heads"
    sizes = (x.numel, y.numel)
    wants = (x.edge is not None, y.edge is not None)

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        first = second = None
        if wants[1]:
            second = tape.new(f"gradient of {name}'s second factor", sizes[1], dtype, second_order)
        if wants[0]:
            first = tape.new(f"gradient of {name}'s first factor", sizes[0], dtype, "heads")
        return first, second

    saves = [(one, PRODUCT) for one, wanted in ((x, wants[1]), (y, wants[0])) if wanted]
    node = tape.node("bmm", [x, y], backward, saves)
    z = tape.new(name, numel, dtype, "heads")
    tape.attach(node, z)
    return z


def grouped(
    tape: Tape, x: Tensor, weights: Parameter, offsets: Tensor, numel: Formula, name: str
) -> Tensor:
    """``F.grouped_mm``: each run of rows by the matrix of its expert. Autocast leaves it alone."""
    x = cast(tape, x, weights.dtype, f"{name}'s input")
    dtype, x_numel = x.dtype, x.numel

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        of_weights = tape.new(f"gradient of {weights.name}", weights.numel, weights.dtype)
        return tape.new(f"gradient of {name}'s input", x_numel, dtype), of_weights

    saves: list[Save] = [(x, INPUT), (weights, PRODUCT), (offsets, RUNS)]
    node = tape.node("grouped_mm", [x, weights], backward, saves)
    z = tape.new(name, numel, dtype)
    tape.attach(node, z)
    return z
