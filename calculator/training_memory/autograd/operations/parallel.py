"""What GPUs that share a layer send to one another: sums, and tokens gathered or scattered.

As DTensor does it in PyTorch 2.13 (torch/distributed/tensor/_collective_utils.py,
placement_types.py and parallel/style.py): a collective writes a new tensor, and where tokens are
not the first dimension their shares are laid side by side by a copy before or after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula
from ..tape import Tape
from ..tensors import Grads, OfAllGpus, Parameter, Tensor
from .common import IDS, like, only, passed


def reduced(tape: Tape, x: Tensor, name: str) -> Tensor:
    """Each GPU's part of a sum to the whole sum; its gradient is every part's."""
    node = tape.node("all_reduce", [x], passed)
    y = like(tape, x, name)
    tape.attach(node, y)
    return y


def shared_input(tape: Tape, x: Tensor, name: str) -> Tensor:
    """What all GPUs have, given to each one's share of a weight; its gradient is summed."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (like(tape, only(grads), f"gradient of {name}, summed"),)

    y = x.view()
    tape.attach(tape.node("view", [x], backward), y)
    return y


def gathered_columns(tape: Tape, x: Tensor, numel: Formula, name: str) -> Tensor:
    """Every GPU's features of each token; back, each takes a copy of its own features' gradient."""
    part = x.numel

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        gradient = only(grads)
        return (tape.new(f"gradient of {name}, its own", part, gradient.dtype),)

    node = tape.node("all_gather", [x], backward)
    shares = tape.new(f"{name}, gathered", numel, x.dtype)
    y = tape.new(name, numel, x.dtype)
    del shares
    tape.attach(node, y)
    return y


def gathered(tape: Tape, x: Tensor, numel: Formula, name: str, *, one_sequence: bool) -> Tensor:
    """Every GPU's tokens; back, each takes the sum of the gradients of its own."""
    part = x.numel

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (_scatter(tape, only(grads), part, f"gradient of {name}"),)

    node = tape.node("all_gather", [x], backward)
    y = _gather(tape, x, numel, name, one_sequence=one_sequence)
    tape.attach(node, y)
    return y


def scattered(tape: Tape, x: Tensor, numel: Formula, name: str, *, one_sequence: bool) -> Tensor:
    """Of the sum of all GPUs' parts each takes its tokens; back, the gradients are gathered."""
    whole = x.numel

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        gradient = only(grads)
        return (_gather(tape, gradient, whole, f"gradient of {name}", one_sequence=one_sequence),)

    node = tape.node("reduce_scatter", [x], backward)
    y = _scatter(tape, x, numel, name)
    tape.attach(node, y)
    return y


def _gather(tape: Tape, x: Tensor, numel: Formula, name: str, *, one_sequence: bool) -> Tensor:
    shares = tape.new(f"{name}, gathered", numel, x.dtype)
    # The shares of one sequence lie in its order.
    return shares if one_sequence else tape.new(f"{name}, in order", numel, x.dtype)


def _scatter(tape: Tape, x: Tensor, numel: Formula, name: str) -> Tensor:
    ordered = tape.new(f"{name}, by GPU", x.numel, x.dtype)
    y = tape.new(f"{name}, this GPU's tokens", numel, x.dtype)
    del ordered
    return y


def part_of_embedding(
    tape: Tape, ids: Tensor, weight: Parameter, whole: Formula, numel: Formula, name: str
) -> Tensor:
    """``F.embedding`` of this GPU's rows, zero where a token is another's: a part of a sum.

    torch/distributed/tensor/_ops/_embedding_ops.py: back, the gradient has the rows of all GPUs
    until it is added to another, a head's.
    """

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        every = tape.new(f"gradient of {weight.name}, all rows", whole, weight.dtype)
        return (OfAllGpus(every.storage, weight.numel, weight.dtype),)

    node = tape.node("embedding", [weight], backward, [(ids, IDS)])
    others = others_rows(tape, ids.numel)
    own = shifted_ids(tape, ids.numel)
    z = tape.new(name, numel, weight.dtype)
    del own, others
    tape.attach(node, z)
    return z


def others_rows(tape: Tape, numel: Formula) -> Tensor:
    """Which ids are in another GPU's part of the vocabulary: below it or above."""
    parts: Sequence[Tensor] = [
        tape.new(f"ids {where} this GPU's rows", numel, "bool") for where in ("below", "above")
    ]
    either = tape.new("ids of other GPUs' rows", numel, "bool")
    del parts
    return either


def shifted_ids(tape: Tape, numel: Formula) -> Tensor:
    """The ids from this GPU's first row on."""
    copied = tape.new("ids copied", numel, "int64")
    shifted = tape.new("ids from this GPU's first row", numel, "int64")
    del copied
    return shifted
