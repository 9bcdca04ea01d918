"""What happens around the parts of a model that several GPUs share: hooks, as modules have them.

The layers' code calls :meth:`Units.before` and :meth:`Units.after` where PyTorch would call the
hooks of a module; on one GPU nothing happens.
"""

from __future__ import annotations

from .tensors import Parameter, Tensor


class Units:
    """One GPU: no unit is shared."""

    #: Whether a weight's gradient, once it is there, is the one that the optimizer reads.
    keeps_gradients = True
    #: Whether gradients are summed over GPUs in this micro-batch.
    reduces = True
    #: Whether a layer's hooks are around its checkpoint, and not in it.
    outside = False

    def begin(self) -> None:
        """The model's forward pass begins."""

    def start(self, unit: str) -> None:
        """A unit's forward pass begins, which needs no gradient of its input."""

    def before(self, unit: str, x: Tensor, index: int = 0) -> Tensor:
        """A unit's forward pass begins with an input; returns what the unit is given."""
        return x

    def after(self, unit: str, output: Tensor, index: int = 0) -> None:
        """A unit's forward pass ends with an output."""

    def enter(self, weight: Parameter) -> None:
        """A weight of an adapter is a unit, and its forward pass begins."""

    def leave(self, weight: Parameter, output: Tensor) -> None:
        """The same ends with an output."""

    def shown(self, weight: Parameter) -> str:
        """The dtype that a weight of an adapter has as it is looked at, before it is used."""
        return weight.dtype

    def end(self, *outputs: Tensor) -> None:
        """The model's forward pass ends."""

    def close(self) -> None:
        """What the model returns is there, as the trainer is given it."""

    def finish(self) -> None:
        """The backward pass ends."""
