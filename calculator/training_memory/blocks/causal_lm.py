"""A language model around its layers: embedding, final norm, head and loss."""

from __future__ import annotations

from collections.abc import Callable

from ..autograd.checkpoint import keep_every_other_product, keep_products
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..slices import Work, finished
from ..structure import Structure
from . import compiled, losses
from .adapters import fitting
from .families import FAMILIES
from .shared import Shared


class CausalLM:
    """One model's weights, and its forward pass to the loss, with a number of layers."""

    def __init__(self, structure: Structure, layers: int, chunks: int) -> None:
        self.structure = structure
        self.chunks = chunks
        self.family = FAMILIES[structure.family]
        fit = fitting(structure)
        self.outer = Weights(structure.weights, fit)
        self.layers = [Weights(structure.weights, fit) for _ in range(layers)]

    def forward(
        self, tape: Tape, ids: Tensor, labels: Tensor
    ) -> Work[tuple[Tensor, Tensor | None]]:
        """The loss, and the logits where all of them exist; may be left off after every layer."""
        tape.units.begin()
        head = self.outer("embedding" if self.structure.tied else "head", "V", "h")
        bias = self.outer.optional(self.structure.head_bias, "head bias", "V")
        hidden = [(yield from self.stack_in_steps(tape, ids))]
        # Handed over, not held here as well.
        return losses.of(tape, hidden.pop, head, bias, labels, self.structure, self.chunks)

    def stack(self, tape: Tape, ids: Tensor) -> Tensor:
        """The last hidden states."""
        return finished(self.stack_in_steps(tape, ids))

    def stack_in_steps(self, tape: Tape, ids: Tensor) -> Work[Tensor]:
        """:meth:`stack`, which may be left off after every layer."""
        tape.mark("forward", "embedding")
        start = self.family.before(tape, ids, self.outer, self.structure)
        x = start.take()
        for index, weights in enumerate(self.layers):
            tape.mark("forward", "layer", index)
            x = self._layer(tape, x, weights, start.others if index else start.first, index)
            yield
        tape.mark("forward", "norm")
        x = tape.units.before("tail", x)
        with tape.module("final norm"):
            x = self.family.norm(tape, x, self.outer, self.structure)
        return tape.units.before("head", x)

    def _layer(self, tape: Tape, x: Tensor, weights: Weights, shared: Shared, index: int) -> Tensor:
        def region(x: Tensor) -> Tensor:
            if not tape.units.outside:
                x = tape.units.before("layer", x, index)
            layer = compiled.layer if self.structure.compiled != "none" else self.family.layer
            y = layer(tape, x, weights, self.structure, shared)
            if not tape.units.outside:
                tape.units.after("layer", y, index)
            return y

        if not tape.units.outside:
            return self._run(tape, region, x)
        y = self._run(tape, region, tape.units.before("layer", x, index))
        tape.units.after("layer", y, index)
        return y

    def _run(self, tape: Tape, region: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        recompute = self.structure.recompute
        if recompute in ("full", "matmuls") and self.structure.compiled == "none":
            plain = self.structure.implementation == "torchtitan"
            keeps = keep_every_other_product if plain else keep_products
            return tape.checkpoint(region, x, keeps=keeps() if recompute == "matmuls" else None)
        return region(x)
