"""Norms in one operation, and the mean that the others are built with."""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula
from ..tape import Tape
from ..tensors import Grads, Parameter, Tensor
from .common import NORM, like, only
from .views import cast


def mean(tape: Tape, x: Tensor, numel: Formula) -> Tensor:
    """``x.mean(-1, keepdim=True)``: back, the gradient is spread over what was averaged."""
    whole, dtype, order = x.numel, x.dtype, x.order

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient spread", whole, dtype, order),)

    node = tape.node("mean", [x], backward)
    z = tape.new("mean", numel, x.dtype, x.order)
    tape.attach(node, z)
    return z


def layer_norm(
    tape: Tape, x: Tensor, weight: Parameter, bias: Parameter | None, rows: Formula
) -> Tensor:
    """``F.layer_norm``: saves its input, and mean and inverse deviation in fp32."""
    return _fused(tape, x, [weight, bias], rows, ("mean", "inverse deviation"))


def rms_norm(tape: Tape, x: Tensor, weight: Parameter, rows: Formula) -> Tensor:
    """``F.rms_norm`` by its own kernel: saves its input, and the inverse root in fp32."""
    return _fused(tape, x, [weight], rows, ("inverse root",))


def _in_fp32(tape: Tape, weight: Parameter | Tensor) -> Parameter | Tensor:
    if weight.dtype == "fp32":
        return weight
    return tape.new("norm's weight in fp32", weight.numel, "fp32")


def _fused(
    tape: Tape,
    x: Tensor,
    parameters: Sequence[Parameter | None],
    rows: Formula,
    spread_names: Sequence[str],
) -> Tensor:
    used: list[Parameter | Tensor] = [one for one in parameters if one]
    if tape.autocast:
        # From the last argument to the first; copies of 16-bit weights, which are frozen here.
        copies = [_in_fp32(tape, one) for one in reversed(used)]
        used = copies[::-1]
        x = cast(tape, x, "fp32", "norm input")

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        return [
            like(tape, only(grads), "gradient of a norm's input"),
            *(
                tape.new(f"gradient of {one.name}", one.numel, one.dtype)
                if one and one.trainable
                else None
                for one in parameters
            ),
        ]

    kept = [(one, NORM) for one in used]
    node = tape.node("norm", [x, *parameters], backward, [(x, NORM), *kept])
    z = like(tape, x, "norm output")
    spread = [tape.new(f"norm's {name}", rows, "fp32") for name in spread_names]
    tape.attach(node, z, saves=[(one, NORM) for one in spread])
    return z
