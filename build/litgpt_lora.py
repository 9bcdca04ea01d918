"""litgpt's LoRA: lit_gpt/lora.py (LoRAQKVLinear), as it was in 2023."""

from __future__ import annotations

from training_memory.autograd import operations as op
from training_memory.autograd.operations.common import INPUT, PRODUCT, RUNS
from training_memory.autograd.tape import Tape
from training_memory.autograd.tensors import Grads, Parameter, Tensor
from training_memory.autograd.weights import Weights
from training_memory.blocks.sizes import QUERIES
from training_memory.formula import Formula, product

#: Queries and values have adapters, of one matrix down.
DOWN_WEIGHT = 2 * product(("R", "h"))
UP_WEIGHT = 2 * product(("R", "a", "e"))
NARROW = 2 * product(("s", "b", "R"))
ADAPTED = 2 * QUERIES
JOINT = 3 * QUERIES
#: Where each of the adapters' features goes.
PLACES = 2 * product(("a", "e"))
SOURCE = "Autograd keeps what was put in, though it reads no more than its size."


def adapted(tape: Tape, x: Tensor, w: Weights, base: Tensor, *, one_sequence: bool) -> Tensor:
    """``LoRAQKVLinear``: adapters beside two of the joint product's three parts."""
    down, up = w.of("adapter, down", DOWN_WEIGHT), w.of("adapter, up", UP_WEIGHT)
    narrow = op.linear(tape, op.dropout(tape, x), down, NARROW, "adapter, down")
    more = _convolved(tape, narrow, up)
    more = op.scale(tape, _padded(tape, more, one_sequence=one_sequence), "adapter, scaled")
    return op.add(tape, base, more, "adapted")


def _padded(tape: Tape, x: Tensor, *, one_sequence: bool) -> Tensor:
    """``zero_pad``: put among zeros, where the keys are. What was put in is kept."""
    zeros = tape.new("zeros", JOINT, "bf16")
    places = tape.new("places of the adapted features", PLACES, "int64")
    if not one_sequence:
        x = copied(tape, x, "adapter's output by tokens")

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of what was put in", ADAPTED, "bf16"),)

    node = tape.node("index_copy", [x], backward, [(x, SOURCE), (places, RUNS)])
    padded = tape.new("adapter's output among zeros", JOINT, "bf16")
    del zeros
    tape.attach(node, padded)
    return padded


def copied(tape: Tape, x: Tensor, name: str) -> Tensor:
    """``x.reshape(…)`` where the memory does not lie so."""

    def backward(tape: Tape, grads: Grads) -> Grads:
        return [grads[0]]

    node = tape.node("clone", [x], backward)
    y = tape.new(name, x.numel, x.dtype)
    tape.attach(node, y)
    return y


def _convolved(tape: Tape, x: Tensor, weight: Parameter) -> Tensor:
    """``F.conv1d`` in two groups: saves its input and the weight."""
    numel: Formula = x.numel

    def backward(tape: Tape, grads: Grads) -> list[Tensor]:
        return [
            tape.new("gradient of the adapter's narrow part", numel, "bf16"),
            tape.new(f"gradient of {weight.name}", weight.numel, "bf16"),
        ]

    node = tape.node("convolution", [x, weight], backward, [(x, INPUT), (weight, PRODUCT)])
    y = tape.new("adapter, up", ADAPTED, "bf16")
    tape.attach(node, y)
    return y
