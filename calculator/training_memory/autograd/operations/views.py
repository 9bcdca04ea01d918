"""Casts, copies and views. A view takes no memory; going back, some of them do."""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula, total
from ..tape import Tape
from ..tensors import Backward, Grads, Tensor
from .common import like, only, passed


def cast(tape: Tape, x: Tensor, dtype: str, name: str = "cast") -> Tensor:
    """``x.to(dtype)``: nothing where it has that type, else a copy."""
    if x.dtype == dtype:
        return x
    before = x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), "gradient cast", before),)

    node = tape.node("to", [x], backward)
    y = like(tape, x, name, dtype)
    tape.attach(node, y)
    return y


def view(tape: Tape, x: Tensor) -> Tensor:
    """``x.view(…)``, ``x[:]``: the same memory by other dimensions."""
    y = x.view()
    tape.attach(tape.node("view", [x], passed), y)
    return y


def contiguous(x: Tensor) -> str:
    """The order of a tensor with heads that is made anew in the order of its dimensions."""
    return "any" if x.order == "any" else "heads"


def heads(tape: Tape, x: Tensor, *, one: bool = False) -> Tensor:
    """``x.view(b, s, heads, e).transpose(1, 2)``: a view.

    Going back, heads and features are joined again: a copy, if the gradient's memory lies by heads.
    """

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (_in_token_order(tape, only(grads)),)

    y = x.view(order="any" if one else "tokens")
    tape.attach(tape.node("view", [x], backward), y)
    return y


def _in_token_order(tape: Tape, x: Tensor) -> Tensor:
    if x.order != "heads":
        return x
    return tape.new("copy in token order", x.numel, x.dtype)


def by_tokens(tape: Tape, x: Tensor, name: str) -> Tensor:
    """``x.transpose(1, 2).contiguous()``: a copy where the memory lies by heads."""
    if x.order != "heads":
        return x
    node = tape.node("clone", [x], passed)
    y = tape.new(name, x.numel, x.dtype)
    tape.attach(node, y)
    return y


def joined_with_batch(tape: Tape, x: Tensor, *, one_sequence: bool) -> Tensor:
    """``x.reshape(b·heads, …)``, as matmul does it: a copy where the memory lies by tokens.

    With one sequence nothing is copied, since a batch of one can be left out of the order.
    """
    if x.order not in ("tokens", "repeats") or one_sequence:
        return x
    node = tape.node("clone", [x], passed)
    y = tape.new("copy in head order", x.numel, x.dtype, "heads")
    tape.attach(node, y)
    return y


def heads_joined(tape: Tape, x: Tensor, *, one_sequence: bool) -> Tensor:
    """The product of a batch of matrices as batch × heads again: a view.

    Going back, the gradient must lie by heads, and is copied where it lies by tokens.
    """

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        gradient = only(grads)
        if gradient.order != "tokens" or one_sequence:
            return (gradient,)
        return (tape.new("copy in head order", gradient.numel, gradient.dtype, "heads"),)

    y = x.view(order="heads")
    tape.attach(tape.node("view", [x], backward), y)
    return y


def part(tape: Tape, x: Tensor, numel: Formula, name: str = "slice") -> Tensor:
    """``x[..., a:b]``: a view; its gradient is a whole tensor, zero elsewhere."""
    whole, dtype, order = x.numel, x.dtype, contiguous(x)

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new(f"{name}'s gradient", whole, dtype, order),)

    y = x.part(numel)
    tape.attach(tape.node("slice", [x], backward), y)
    return y


def split(tape: Tape, x: Tensor, numels: Sequence[Formula]) -> list[Tensor]:
    """``x.split(…)`` or ``x.chunk(…)``: views; their gradients are joined into one tensor."""
    parts = [x.part(numel) for numel in numels]
    whole, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradients joined", whole, dtype),)

    tape.attach(tape.node("split", [x], backward, outputs=len(parts)), *parts)
    return parts


def chunk(tape: Tape, x: Tensor) -> tuple[Tensor, Tensor]:
    """``x.chunk(2, dim=-1)``."""
    first, second = split(tape, x, [x.numel / 2] * 2)
    return first, second


def joined(
    tape: Tape, tensors: Sequence[Tensor], name: str = "joined", numel: Formula | None = None
) -> Tensor:
    """``torch.cat``: a new tensor, contiguous; its inputs' gradients are views of its own.

    ``numel`` is what they come to, where that is known.
    """
    sizes = [one.numel for one in tensors]

    def backward(tape: Tape, grads: Grads) -> list[Tensor]:
        return [only(grads).part(size) for size in sizes]

    node = tape.node("cat", tensors, backward)
    y = tape.new(name, numel or total(sizes), tensors[0].dtype, contiguous(tensors[0]))
    tape.attach(node, y)
    return y


def expanded_copy(tape: Tape, x: Tensor, numel: Formula, name: str, order: str = "heads") -> Tensor:
    """``x.expand(…).reshape(…)``: a copy, larger by the repeats, over which backward sums."""
    node = tape.node("expand", [x], _summed_to(x, order))
    y = tape.new(name, numel, x.dtype, order)
    tape.attach(node, y)
    return y


def expanded(tape: Tape, x: Tensor, numel: Formula) -> Tensor:
    """The same where there is one key head: a view, whose repeats all lie at the same place."""
    y = Tensor(x.storage, numel, x.dtype, None, "repeats")
    tape.attach(tape.node("expand", [x], _summed_to(x, "heads")), y)
    return y


def _summed_to(x: Tensor, order: str) -> Backward:
    before, dtype = x.numel, x.dtype
    order = "any" if x.order == "any" else order

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient summed over repeats", before, dtype, order),)

    return backward
