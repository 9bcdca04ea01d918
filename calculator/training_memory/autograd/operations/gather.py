"""Rows taken by number, and what choosing experts needs: the highest scores, sums, ratios."""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula
from ..tape import Tape
from ..tensors import Grads, Tensor
from .common import IDS, PRODUCT, like, only


def rows(tape: Tape, x: Tensor, ids: Tensor, numel: Formula, name: str) -> Tensor:
    """``x[ids]``: saves the row numbers; back, a tensor of zeros and a copy with the rows added."""
    whole, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        zeros = tape.new("zeros", whole, dtype)
        added = tape.new("gradients added to their rows", whole, dtype)
        del zeros
        return (added,)

    node = tape.node("index", [x], backward, [(ids, IDS)])
    y = tape.new(name, numel, dtype)
    tape.attach(node, y)
    return y


def highest(tape: Tape, x: Tensor, numel: Formula, name: str) -> tuple[Tensor, Tensor]:
    """``torch.topk``: the values and their places, which it saves."""
    whole, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        zeros = tape.new("zeros", whole, dtype)
        placed = tape.new("gradients at their places", whole, dtype)
        del zeros
        return (placed,)

    node = tape.node("topk", [x], backward)
    values = tape.new(name, numel, dtype)
    places = tape.new(f"{name}'s places", numel, "int64")
    tape.attach(node, values, saves=[(places, IDS)])
    return values, places


def summed(tape: Tape, x: Tensor, numel: Formula, name: str, *, copies: bool = False) -> Tensor:
    """``x.sum(dim)``: back, the gradient is seen as repeated; ``copies`` where a view needs it."""
    whole, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        if copies:
            return (tape.new("gradient repeated", whole, dtype),)
        return (Tensor(only(grads).storage, whole, dtype),)

    node = tape.node("sum", [x], backward)
    y = tape.new(name, numel, dtype)
    tape.attach(node, y)
    return y


def divide_in_place(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    """``x /= y``: saves y and, since x is about to change, a copy of x."""
    dtype, numel = x.dtype, x.numel

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        # div_tensor_other_grad: −gradient · ((x / y) / y), one expression.
        parts = [like(tape, only(grads), name) for name in ("ratio", "ratio over y", "minus")]
        of_y = like(tape, only(grads), "gradient of the divisor, of each")
        del parts
        return tape.new("gradient of what was divided", numel, dtype), of_y

    before = like(tape, x, "values before they were divided")
    node = tape.node("div", [x, y], backward, [(y, PRODUCT), (before, PRODUCT)])
    tape.attach(node, x)
    return x


def divide(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    """``x / y`` by something that wants no gradient: saves y."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), "gradient divided"),)

    node = tape.node("div", [x], backward, [(y, PRODUCT)])
    z = like(tape, x, "quotient")
    tape.attach(node, z)
    return z
