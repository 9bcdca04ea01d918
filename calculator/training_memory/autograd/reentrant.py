"""Checkpointed regions as Megatron runs them: a backward pass of their own inside the other.

``CheckpointFunction`` (Megatron-Core 0.16, core/tensor_parallel/random.py) runs the region without
a graph. Going back it runs the whole region again, and then that run's own backward pass, so what
the region gives is held until that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..categories import Category
from .backward import BackwardPass
from .memory import Use
from .tape import AGAIN, Tape, as_input
from .tensors import Argument, Grads, Tensor


def run_twice(
    tape: Tape, region: Callable[..., Tensor], *arguments: Tensor, among: bool = False
) -> Tensor:
    """Run a region keeping only its arguments.

    ``among``: they lie among each other in one tensor, and so do their gradients at first.
    """
    kept = [argument.detached() for argument in arguments]
    for argument in kept:
        use = Use("checkpoint", AGAIN, tape.module_name, tape.part)
        tape.facts[argument.storage.number].uses += (use,)

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        inputs = [as_input(argument) for argument in kept]
        for one in inputs:
            # Whoever goes on holding the graph holds what it began with.
            assert one.edge
            assert isinstance(one.edge[0], Argument)
            one.edge[0].variable = one.detached()
            one.edge[0].copies = among
        # The node's own hold on them lasts as long as its backward pass, that is, this function.
        held, kept[:] = list(kept), []
        before, tape.gradients_on = tape.gradients_on, True
        try:
            with tape.as_category(Category.RECOMPUTED):
                output = region(*inputs)
            (gradient,) = grads
            assert gradient is not None
            BackwardPass(tape, keeps=False).run_from(output.edge, gradient)
        finally:
            tape.gradients_on = before
        del output, held
        edges = [one.edge for one in inputs]
        return [getattr(edge and edge[0], "grad", None) for edge in edges]

    node = tape.node("checkpoint", arguments, backward)
    before, tape.gradients_on = tape.gradients_on, False
    try:
        output = region(*kept)
    finally:
        tape.gradients_on = before
    tape.attach(node, output)
    return output
