"""What the layers of a model share in a step, made before the first of them."""

from __future__ import annotations

from ..autograd.tensors import Tensor
from .rotary import Tables


class Shared:
    """What one kind of layer is given beside its input: rotary tables, and what it only holds.

    ``held`` is what transformers passes to every layer, and a region that runs again therefore
    holds on to: position ids, a mask.
    """

    __slots__ = ("held", "turn")

    def __init__(self, turn: Tables | None, *held: Tensor | None) -> None:
        self.turn = turn
        self.held = held
