"""Looking up rows of a table."""

from __future__ import annotations

from ...formula import Formula
from ..tape import Tape
from ..tensors import Grads, Parameter, Tensor
from .common import IDS


def embedding(tape: Tape, ids: Tensor, weight: Parameter, numel: Formula, name: str) -> Tensor:
    """``F.embedding``: saves the ids; back, a whole table of gradients."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new(f"gradient of {weight.name}", weight.numel, weight.dtype),)

    node = tape.node("embedding", [weight], backward, [(ids, IDS)])
    z = tape.new(name, numel, weight.dtype)
    tape.attach(node, z)
    return z
