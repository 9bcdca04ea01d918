"""How litgpt multiplied by a model's frozen weights: in 16 or 4 bits, scaled and shifted or not.

bitsandbytes 0.41.1, functional.py (quantize_4bit, dequantize_4bit) and autograd/_functions.py
(MatMul4Bit); Lightning Fabric 2.1.0, plugins/precision/bitsandbytes.py, which has every
``torch.nn.Linear`` in 4 bits, the head too; lit_gpt/adapter_v2.py (AdapterV2Linear).
"""

from __future__ import annotations

from collections.abc import Mapping

from training_memory.autograd import operations as op
from training_memory.autograd.memory import WORKING
from training_memory.autograd.tape import Tape
from training_memory.autograd.tensors import Grads, Parameter, Tensor
from training_memory.autograd.weights import Weights
from training_memory.formula import Formula
from training_memory.layouts import rounded

#: So many numbers in 4 bits share a scale, and so many scales in 8 bits one of their own.
BLOCK, BLOCK_OF_SCALES = 64, 256
#: In fp32, of each weight: what its 16 codes stand for; where the scales are in 8 bits, their mean.
CODES, MEAN = 16, 1


class Products:
    """Products with weights of one kind: ``bits`` is "16", "nf4" or "nf4-dq".

    With ``shifts``, each product is shifted and scaled by trained numbers, one a feature.
    """

    def __init__(self, bits: str, *, shifts: bool) -> None:
        self.bits = bits
        self.shifts = shifts
        #: What MatMul4Bit puts into its context by itself, so that it stays when the backward pass
        #: has used it, for as long as the loss does (``ctx.tensors``, not ``save_for_backward``).
        self.inputs: list[Tensor] = []

    def __call__(
        self,
        tape: Tape,
        x: Tensor,
        w: Weights,
        name: str,
        *,
        of: Formula,
        features: Formula,
        numel: Formula,
        bias: bool = False,
    ) -> Tensor:
        """``x`` by the weight of that name, of ``of`` numbers; ``numel`` come out."""
        weight = w.of(name, of)
        added = w.of(f"{name} bias", features) if bias else None
        if self.bits == "16":
            y = op.linear(tape, x, weight, numel, name, added)
        else:
            weight.packed = True
            y = self._unpacked(tape, x, weight, numel, name)
        if not self.shifts:
            return y
        y = _shifted(tape, y, w.of(f"{name} shift", features), f"{name}, shifted")
        return op.multiply_weight(tape, y, w.of(f"{name} scale", features), f"{name}, scaled")

    def _unpacked(
        self, tape: Tape, x: Tensor, weight: Parameter, numel: Formula, name: str
    ) -> Tensor:
        """``MatMul4Bit``: a copy in 16 bits for each product, and for that of its gradient."""
        x_numel = x.numel

        def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
            copy = self._copy(tape, weight)
            made = tape.new(f"gradient of {name}'s input", x_numel, "bf16")
            del copy
            return (made,)

        node = tape.node("MatMul4Bit", [x], backward)
        with tape.as_category(WORKING):
            copy = self._copy(tape, weight)
        y = tape.new(name, numel, "bf16")
        del copy
        tape.attach(node, y)
        if node:
            self.inputs.append(x.detached())
        return y

    def _copy(self, tape: Tape, weight: Parameter) -> Tensor:
        """``dequantize_4bit(…).to(A.dtype)``: in fp16, as it was quantised from, then in bf16."""
        scales = None
        if self.bits == "nf4-dq":
            scales = tape.new(f"{weight.name}'s scales", weight.numel / BLOCK, "fp32")
        half = tape.new(f"{weight.name}, copy in fp16", weight.numel, "bf16")
        del scales
        copy = tape.new(f"{weight.name}, copy in bf16", weight.numel, "bf16")
        del half
        return copy

    def bytes_of(self, weight: Parameter, values: Mapping[str, int]) -> int:
        """What one weight takes while it waits, as the allocator holds it."""
        numel = weight.numel.evaluate(values)
        if not weight.packed:
            return rounded(2 * numel)
        scales = -(-numel // BLOCK)
        found = rounded(-(-numel // 2)) + rounded(4 * CODES)
        if self.bits == "nf4":
            return found + rounded(4 * scales)
        of_scales = rounded(4 * -(-scales // BLOCK_OF_SCALES))
        return found + rounded(scales) + of_scales + rounded(4 * MEAN)


def _shifted(tape: Tape, x: Tensor, by: Parameter, name: str) -> Tensor:
    """``x + by``: the gradient of both is the sum's."""

    def backward(tape: Tape, grads: Grads) -> Grads:
        return [grads[0], grads[0]]

    node = tape.node("add", [x, by], backward)
    y = tape.new(name, x.numel, x.dtype)
    tape.attach(node, y)
    return y
