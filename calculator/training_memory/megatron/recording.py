"""A recorded stage: a few of its layers and what is around them, forward and backward once."""

from __future__ import annotations

from functools import lru_cache

from ..autograd.memory import WORKING
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..blocks.megatron import Stage
from ..blocks.megatron_ends import ONE
from ..blocks.megatron_structure import StageStructure
from ..blocks.nanotron import NanotronStage
from ..recording import Recording, of_memory

__all__ = ["record"]


@lru_cache(maxsize=64)
def record(structure: StageStructure, layers: int, dense: int = 0) -> Recording:
    """One micro-batch's forward and backward pass through a stage of so many layers.

    ``dense`` layers without experts come before.

    Its input and output, and what another stage sends back or is sent, are left behind: the
    schedule's variables hold them until they are given the next.
    """
    tape = Tape()
    kind = NanotronStage if structure.style == "nanotron" else Stage
    stage = kind(structure, layers, dense)
    held = _passes(tape, stage)
    made = of_memory(tape)
    del held
    return made


def _passes(tape: Tape, stage: Stage) -> list[Tensor | None]:
    output = stage.forward(tape)
    held: list[Tensor | None] = []
    if stage.structure.last:
        tape.mark("backward", "loss")
        kept = output.detached()
        if not (stage.structure.first or stage.structure.interleaves):
            # A pipeline's last stage gives back its output's memory like every other.
            kept = tape.new("stub of the loss", ONE, "fp32")
        stage.run_backward(tape, (output, None))
        held.append(kept)
    else:
        edge, own = output.edge, stage.structure.own_tokens
        tape.mark("forward", "output")
        # Once sent, its memory is given back; the graph that hangs on it stays.
        del output
        stub = tape.new("stub of what was sent", ONE, "bf16")
        stub.edge = edge
        held.append(stub.detached())
        tape.mark("backward", "output")
        with tape.as_category(WORKING):
            gradient = tape.new("gradient from the next stage", own, "bf16")
        held.append(gradient)
        stage.run_backward(tape, (stub, gradient))
        del stub
    if stage.received is not None:
        edge = stage.received.edge
        held += [stage.received.detached(), getattr(edge and edge[0], "grad", None)]
    return held
