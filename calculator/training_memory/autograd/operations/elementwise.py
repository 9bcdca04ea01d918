"""Operations on each element by itself, and softmax, which is one on each row."""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula
from ..tape import Save, Tape
from ..tensors import Backward, Grads, Parameter, Tensor
from .common import ARGUMENT, MASK, MASKED, OUTPUT, PRODUCT, like, only, passed, promoted
from .views import cast


def add(tape: Tape, x: Tensor, y: Tensor, name: str = "sum") -> Tensor:
    """``x + y``, ``y`` repeated where smaller: saves nothing; both gradients are the sum's."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor, Tensor]:
        return only(grads), only(grads)

    node = tape.node("add", [x, y], backward)
    z = like(tape, x, name, promoted(x.dtype, y.dtype))
    tape.attach(node, z)
    return z


def add_number(tape: Tape, x: Tensor, name: str = "sum", dtype: str | None = None) -> Tensor:
    """``x + c`` with a number, or with something that wants no gradient, such as a mask.

    ``dtype`` is that of the mask: the wider of the two is the sum's.
    """
    node = tape.node("add", [x], passed)
    z = like(tape, x, name, promoted(x.dtype, dtype or x.dtype))
    tape.attach(node, z)
    return z


def one_more(tape: Tape, weight: Parameter) -> Tensor:
    """``1.0 + weight.float()``."""
    before = weight.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), "gradient cast", before),)

    scale: Tensor | Parameter = weight
    if before != "fp32":
        node = tape.node("to", [weight], backward)
        scale = tape.new("scale in fp32", weight.numel, "fp32")
        tape.attach(node, scale)
    node = tape.node("add", [scale], passed)
    z = tape.new("1 + scale", weight.numel, "fp32")
    tape.attach(node, z)
    return z


def multiply(tape: Tape, x: Tensor, y: Tensor, name: str = "product") -> Tensor:
    """``x * y``; ``y`` may be smaller and is then repeated, and its gradient summed."""
    wants = (x.edge is not None, y.edge is not None)
    saves = [(one, PRODUCT) for one, wanted in ((y, wants[0]), (x, wants[1])) if wanted]

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        # In the order of the arguments' names, "other" and "self".
        other = like(tape, only(grads), "gradient of a factor") if wants[1] else None
        return (like(tape, only(grads), "gradient of a factor") if wants[0] else None, other)

    node = tape.node("mul", [x, y], backward, saves)
    z = like(tape, x, name, promoted(x.dtype, y.dtype))
    tape.attach(node, z)
    return z


def multiply_weight(tape: Tape, x: Tensor, weight: Parameter, name: str) -> Tensor:
    """``weight * x``, the weight repeated over all rows."""

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        of_x = like(tape, only(grads), "gradient of a norm's output") if wants_x else None
        if not weight.trainable:
            return None, of_x
        return like(tape, only(grads), f"gradient of {weight.name}, of each row"), of_x

    wants_x = x.edge is not None
    saves: list[Save] = [(weight, PRODUCT)] if wants_x else []
    if weight.trainable:
        saves.append((x, PRODUCT))
    node = tape.node("mul", [weight, x], backward, saves)
    z = like(tape, x, name, promoted(x.dtype, weight.dtype))
    tape.attach(node, z)
    return z


def turned(tape: Tape, x: Tensor, table: Formula) -> Tensor:
    """``x * by`` in complex numbers, two fp32 each; ``by`` is a table that wants no gradient.

    Going back by its conjugate, of which a copy is made for the moment.
    """

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        conjugate = tape.new("conjugate of the rotations", table, "fp32")
        result = like(tape, only(grads), "gradient turned back")
        del conjugate
        return (result,)

    node = tape.node("mul", [x], backward)
    # The same memory, seen as half as many complex numbers.
    z = Tensor(tape.storage("turned", x.numel / 2, "complex64"), x.numel, x.dtype, None, x.order)
    tape.attach(node, z)
    return real(tape, z)


def real(tape: Tape, x: Tensor) -> Tensor:
    """``torch.view_as_real``: a view; back, the gradient must lie in the order of the tokens."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        gradient = only(grads)
        if gradient.order in ("tokens", "any"):
            return (gradient,)
        return (tape.new("copy in token order", gradient.numel, gradient.dtype),)

    y = x.view()
    tape.attach(tape.node("view_as_real", [x], backward), y)
    return y


def masked(tape: Tape, x: Tensor, mask: Tensor, name: str) -> Tensor:
    """``x.masked_fill(mask, c)``: saves the mask."""
    node = tape.node("masked_fill", [x], _one_gradient("mask"), [(mask, MASKED)])
    z = like(tape, x, name)
    tape.attach(node, z)
    return z


def scale(tape: Tape, x: Tensor, name: str = "scaled") -> Tensor:
    """``x * c`` or ``x / c`` with a number: saves nothing."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), "gradient scaled"),)

    node = tape.node("mul", [x], backward)
    z = like(tape, x, name)
    tape.attach(node, z)
    return z


def negate(tape: Tape, x: Tensor) -> Tensor:
    """``-x``: saves nothing."""
    return scale(tape, x, "negated")


def square(tape: Tape, x: Tensor) -> Tensor:
    """``x.pow(2)``: saves x."""
    return _power(tape, x, "square")


def cube(tape: Tape, x: Tensor) -> Tensor:
    """``x.pow(3)``: saves x."""
    return _power(tape, x, "cube")


def _power(tape: Tape, x: Tensor, name: str) -> Tensor:
    if tape.autocast:
        x = cast(tape, x, "fp32", f"{name} input")  # pow is on autocast's list of fp32 operations

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        # pow_backward: gradient · (exponent · x^(exponent − 1)), one expression.
        lower = like(tape, only(grads), "lower power")
        times = like(tape, only(grads), "lower power times exponent")
        result = like(tape, only(grads), f"gradient of a {name}")
        del lower, times
        return (result,)

    node = tape.node("pow", [x], backward, [(x, ARGUMENT)])
    z = like(tape, x, name)
    tape.attach(node, z)
    return z


def reciprocal_root(tape: Tape, x: Tensor) -> Tensor:
    """``torch.rsqrt``: saves its output."""
    if tape.autocast:
        x = cast(tape, x, "fp32", "rsqrt input")

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        # −½ · gradient · output³: the cube and its half are both there as the product is made.
        cubed = like(tape, only(grads), "inverse root cubed")
        half = like(tape, only(grads), "half of the gradient")
        result = like(tape, only(grads), "gradient of an inverse root")
        del cubed, half
        return (result,)

    node = tape.node("rsqrt", [x], backward)
    z = like(tape, x, "inverse root")
    tape.attach(node, z, saves=[(z, OUTPUT)])
    return z


def tanh(tape: Tape, x: Tensor) -> Tensor:
    """``torch.tanh``: saves its output."""
    return from_output(tape, x, "tanh", "tanh output")


def silu(tape: Tape, x: Tensor) -> Tensor:
    """``F.silu``: saves its input."""
    return _from_input(tape, x, "silu", "SiLU output")


def gelu(tape: Tape, x: Tensor) -> Tensor:
    """``F.gelu``, in either form: saves its input."""
    return _from_input(tape, x, "gelu", "GELU output")


def gated(tape: Tape, gate: Tensor, up: Tensor, *, copies: bool = False) -> Tensor:
    """act(gate) · up in one kernel: Liger's LigerSiLUMulFunction and LigerGELUMulFunction.

    It saves both factors, makes the activation again going back, and writes their gradients over
    them. Where they are not contiguous it ``copies`` both first.
    Source: src/liger_kernel/ops/swiglu.py, geglu.py; Hsu et al. 2024, arXiv:2410.10989, §3.2.
    """
    inputs = gate, up
    if copies:
        gate = tape.new("gate, contiguous", gate.numel, gate.dtype)
        up = tape.new("up, contiguous", up.numel, up.dtype)
    node = tape.node("gated", inputs, None, [(gate, ARGUMENT), (up, PRODUCT)])
    z = like(tape, up, "gated")
    tape.attach(node, z)
    return z


def softmax(tape: Tape, x: Tensor, dtype: str | None = None) -> Tensor:
    """``F.softmax(…, dtype)``: a copy in that type first where it differs; saves its output."""
    wanted = "fp32" if tape.autocast else dtype or x.dtype
    x = cast(tape, x, wanted, "softmax input")
    return from_output(tape, x, "softmax", "softmax output")


def from_output(tape: Tape, x: Tensor, name: str, label: str) -> Tensor:
    """An operation whose backward pass reads its output, and makes one tensor."""
    node = tape.node(name, [x], _one_gradient(label))
    z = like(tape, x, label)
    tape.attach(node, z, saves=[(z, OUTPUT)])
    return z


def _from_input(tape: Tape, x: Tensor, name: str, label: str) -> Tensor:
    node = tape.node(name, [x], _one_gradient(label), [(x, ARGUMENT)])
    z = like(tape, x, label)
    tape.attach(node, z)
    return z


def _one_gradient(label: str) -> Backward:
    """Going back makes one tensor like the output's gradient."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), f"gradient before the {label}"),)

    return backward


def dropout(tape: Tape, x: Tensor, *, drops: bool = True) -> Tensor:
    """``F.dropout`` in training: the output, and a mask of one byte an element.

    Where it drops nothing it is its input (aten/src/ATen/native/Dropout.cpp).
    """
    if not drops:
        return x
    node = tape.node("native_dropout", [x], _one_gradient("dropout"))
    z = like(tape, x, "dropout output")
    mask = like(tape, x, "dropout mask", "bool")
    tape.attach(node, z, saves=[(mask, MASK)])
    return z
