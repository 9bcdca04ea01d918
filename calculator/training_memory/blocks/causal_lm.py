"""A Hugging Face language model around its layers: embedding, final norm, head and loss."""

from __future__ import annotations

from collections.abc import Callable

from ..autograd import operations as op
from ..autograd.tape import Tape, Tensor
from ..autograd.weights import Weights
from ..categories import Category
from ..structure import Structure
from . import gpt2, llama
from .sizes import LOGITS, PAIRS, PLACES, POSITIONS, ROTARY, ROWS, TOKENS

Shared = tuple[Tensor | None, Tensor | None, Tensor | None]
_LAYERS: dict[str, Callable[..., Tensor]] = {"gpt2": gpt2.layer, "llama": llama.layer}


class CausalLM:
    """One model's weights, and its forward pass to the loss, with a number of layers."""

    def __init__(self, structure: Structure, layers: int = 1) -> None:
        self.structure = structure
        self.outer = Weights(structure.weights)
        self.layers = [Weights(structure.weights) for _ in range(layers)]

    def forward(self, tape: Tape, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and the logits."""
        x = self._stack(tape, ids)
        structure = self.structure
        tape.mark("forward", "head")
        head = self.outer("embedding" if structure.tied else "head", "V", "h")
        with tape.as_category(Category.LOGITS):
            logits = op.linear(tape, x, head, LOGITS, "logits")
            return self._loss(tape, logits, labels), logits

    def _loss(self, tape: Tape, logits: Tensor, labels: Tensor) -> Tensor:
        """ForCausalLMLoss: logits in fp32, labels shifted by one."""
        tape.mark("forward", "loss")
        logits = op.to(tape, logits, "fp32", "logits in fp32")
        # F.pad makes the labels one longer, and their shifted view is copied.
        padded = tape.new("labels padded", ROWS, "int64")
        shifted = tape.new("labels shifted", ROWS, "int64")
        del padded
        return op.cross_entropy(tape, logits, shifted)

    def _stack(self, tape: Tape, ids: Tensor) -> Tensor:
        structure, w = self.structure, self.outer
        x = op.embedding(tape, ids, w("embedding", "V", "h"), TOKENS, "embedding output")
        if structure.learned_positions:
            positions = tape.new("position ids", POSITIONS, "int64")
            table = w("positions", "P", "h")
            placed = op.embedding(tape, positions, table, PLACES, "position embedding")
            x = op.add(tape, x, placed, "embedded tokens")
        shared = self._shared(tape, x.dtype)
        if structure.learned_positions:
            x = op.dropout(tape, x)
        layer = _LAYERS[structure.family]
        for index, weights in enumerate(self.layers):
            tape.mark("forward", "layer", index)
            x = self._layer(tape, x, layer, weights, shared)
        tape.mark("forward", "norm")
        if structure.family == "gpt2":
            return op.layer_norm(tape, x, w("final norm", "h"), w("final norm bias", "h"), ROWS)
        return llama.rms_norm(tape, x, w("final norm", "h"))

    def _layer(
        self,
        tape: Tape,
        x: Tensor,
        layer: Callable[..., Tensor],
        weights: Weights,
        shared: Shared,
    ) -> Tensor:
        def region(x: Tensor) -> Tensor:
            return layer(tape, x, weights, self.structure, shared)

        recompute = self.structure.recompute
        if recompute in ("full", "matmuls"):
            return tape.checkpoint(region, x, keeps_matmuls=recompute == "matmuls")
        return region(x)

    def _shared(self, tape: Tape, dtype: str) -> Shared:
        """What all layers read: rotary tables, and for eager attention the causal mask."""
        cos = sin = mask = None
        if not self.structure.learned_positions:
            cos, sin = (tape.new(f"rotary {name}", ROTARY, dtype) for name in ("cosine", "sine"))
        if self.structure.attention == "eager":
            mask = tape.new("causal mask", PAIRS, dtype)
        return cos, sin, mask
