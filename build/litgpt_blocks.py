"""litgpt's model, its LoRA and its loss as they were in 2023, on the calculator's own tape.

Lightning-AI/litgpt, lit_gpt/model.py, lora.py, rmsnorm.py, utils.py (chunked_cross_entropy) and
finetune/lora.py, as read in versions of some months around the benchmark's (commit 8641822,
October 2023); Lightning Fabric 2.1.0, wrappers.py and plugins/precision/half.py, bf16-true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from measured_losses import CUBLAS_BYTES
from training_memory.autograd import operations as op
from training_memory.autograd.backward import BackwardPass
from training_memory.autograd.operations.common import INPUT, PRODUCT, RUNS
from training_memory.autograd.tape import Tape
from training_memory.autograd.tensors import Grads, Parameter, Tensor
from training_memory.autograd.weights import Weights
from training_memory.blocks.sizes import HEAD_ROWS, QUERIES, ROTARY, ROWS, TOKENS, WIDE
from training_memory.categories import Category
from training_memory.formula import Formula, as_formula, product, symbol
from training_memory.layouts import rounded

#: Queries and values have adapters, of one matrix down.
DOWN_WEIGHT = 2 * product(("R", "h"))
UP_WEIGHT = 2 * product(("R", "a", "e"))
NARROW = 2 * product(("s", "b", "R"))
ADAPTED = 2 * QUERIES
JOINT = 3 * QUERIES
JOINT_WEIGHT = 3 * product(("h", "a", "e"))
JOINT_BIAS = 3 * product(("a", "e"))
#: Where each of the adapters' features goes.
PLACES = 2 * product(("a", "e"))
SOURCE = "Autograd keeps what was put in, though it reads no more than its size."


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model's shape, as lit_gpt/config.py has it; every head has keys of its own.

    ``gated`` models have LLaMAMLP and RMSNorm, the others GptNeoxMLP and LayerNorm. ``parallel``:
    attention and feed-forward layer have the same input, by the same norm where ``one_norm``.
    One in ``turned_in`` of a head's features is rotated, all of them where it is 1.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int
    gated: bool
    parallel: bool = False
    one_norm: bool = False
    turned_in: int = 1
    bias: bool = False
    head_bias: bool = False


class Step:
    """A model of so many layers, and its forward and backward pass."""

    def __init__(self, shape: Shape, layers: int, *, one_sequence: bool) -> None:
        self.shape = shape
        self.one_sequence = one_sequence
        self.outer = Weights("bf16", _freeze)
        self.layers = [Weights("bf16", _freeze) for _ in range(layers)]

    def made(self) -> Sequence[tuple[Parameter, int]]:
        """Every parameter of the outside and of a layer, and how many there are of it."""
        return [
            *((one, 1) for one in self.outer.made.values()),
            *((one, self.shape.layers) for one in self.layers[0].made.values()),
        ]

    def weights(self, values: Mapping[str, int]) -> Sequence[int]:
        """The bytes of every parameter, in 16 bits, as the allocator holds them."""
        return [times * rounded(2 * one.numel.evaluate(values)) for one, times in self.made()]

    def run(self, tape: Tape, *, chunks: int) -> None:
        """A micro-batch of finetune/lora.py."""
        tape.mark("forward", "inputs")
        held = [tape.new("cuBLAS's workspace", as_formula(CUBLAS_BYTES), "bool")]
        held += [tape.new(name, ROTARY / self.shape.turned_in, "fp32") for name in ("cos", "sin")]
        ids, targets = (tape.new(name, ROWS, "int64") for name in ("token ids", "targets"))
        made = self._forward(tape, ids, (held[1], held[2]), chunks)
        tape.mark("forward", "loss")
        # Fabric's convert_output: whatever the model returns, in the default dtype, fp32.
        with tape.as_category(Category.LOGITS):
            logits = [op.cast(tape, one, "fp32", "logits in fp32") for one in made]
        del made
        loss = self._loss(tape, logits, targets)
        loss = op.scale(tape, loss, "loss over the micro-batches")
        BackwardPass(tape).run(loss)
        del held, ids, logits

    def _forward(
        self, tape: Tape, ids: Tensor, turn: tuple[Tensor, Tensor], chunks: int
    ) -> list[Tensor]:
        """The logits of each chunk."""
        tape.mark("forward", "embedding")
        x = op.embedding(tape, ids, self.outer("embedding", "V", "h"), TOKENS, "embedded tokens")
        for index, w in enumerate(self.layers):
            tape.mark("forward", "layer", index)
            x = self._block(tape, x, w, turn)
        tape.mark("forward", "head")
        x = self._norm(tape, x, self.outer, "final norm")
        head = self.outer("head", "V", "h")
        bias = self.outer.optional(self.shape.head_bias, "head bias", "V")
        sizes = [symbol("c")] * (chunks - 1) + [symbol("r")]
        parts = op.split(tape, x, [size * symbol("h") for size in sizes])
        with tape.as_category(Category.LOGITS):
            return [
                op.linear(tape, part, head, size * symbol("V"), "logits", bias)
                for part, size in zip(parts, sizes, strict=True)
            ]

    def _loss(self, tape: Tape, logits: list[Tensor], targets: Tensor) -> Tensor:
        """``chunked_cross_entropy``, after the last token's logits were cut off.

        With several sequences what is left of the last chunk is copied. Losses of each token are
        at most one block of the allocator a chunk and sequence, as is one number.
        """
        whole = logits[-1].numel
        kept = whole - product(("b", "V"))
        logits[-1] = op.part(tape, logits[-1], kept)
        rows = list(logits)
        if not self.one_sequence:
            with tape.as_category(Category.LOGITS):
                rows[-1] = _copied(tape, rows[-1], "the last chunk's logits, without the last")
        losses = [op.cross_entropy(tape, one, targets) for one in rows]
        return op.scale(tape, op.joined(tape, losses, "losses"), "mean loss")

    def _block(self, tape: Tape, x: Tensor, w: Weights, turn: tuple[Tensor, Tensor]) -> Tensor:
        first = self._norm(tape, x, w, "attention norm")
        seen = self._attention(tape, first, w, turn)
        if self.shape.parallel:
            second = first if self.shape.one_norm else self._norm(tape, x, w, "mlp norm")
            return op.add(tape, op.add(tape, self._mlp(tape, second, w), seen), x)
        x = op.add(tape, seen, x, "residual stream")
        wide = self._mlp(tape, self._norm(tape, x, w, "mlp norm"), w)
        return op.add(tape, wide, x, "residual stream")

    def _norm(self, tape: Tape, x: Tensor, w: Weights, name: str) -> Tensor:
        with tape.module(name):
            weight = w(name, "h")
            if not self.shape.gated:
                return op.layer_norm(tape, x, weight, w(f"{name} bias", "h"), ROWS)
            dtype = x.dtype
            x = op.cast(tape, x, "fp32", "norm input")
            spread = op.mean(tape, op.multiply(tape, x, x, "square"), ROWS)
            root = op.reciprocal_root(tape, op.add_number(tape, spread))
            normed = op.multiply(tape, x, root, "normalised")
            scaled = op.multiply_weight(tape, normed, weight, "scaled")
            return op.cast(tape, scaled, dtype, "norm output")

    def _attention(self, tape: Tape, x: Tensor, w: Weights, turn: tuple[Tensor, Tensor]) -> Tensor:
        with tape.module("attention"):
            joint = self._adapted(tape, x, w)
            # Each is a view; of the values' what is kept is the whole that they are a part of.
            q, k, v = op.split(tape, joint, [QUERIES] * 3)
            q, k = (self._turned(tape, op.heads(tape, one), turn) for one in (q, k))
            y = op.fused_attention(tape, q, k, op.heads(tape, v), HEAD_ROWS)
            y = op.by_tokens(tape, y, "context in token order")
            bias = w.optional(self.shape.bias, "attention output bias", "h")
            return op.linear(tape, y, w("attention output", "h", "a", "e"), TOKENS, "out", bias)

    def _turned(self, tape: Tape, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """``apply_rope`` of the first features, and the others after them."""
        share = QUERIES / self.shape.turned_in
        parts = [_rope(tape, op.part(tape, x, share), turn)]
        if self.shape.turned_in > 1:
            parts.append(op.part(tape, x, QUERIES - share))
        return op.joined(tape, parts, "rotated")

    def _adapted(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        """``LoRAQKVLinear``: queries, keys and values in one, adapters beside two of them."""
        name = "query, key and value"
        bias = w.of(f"{name} bias", JOINT_BIAS) if self.shape.bias else None
        base = op.linear(tape, x, w.of(name, JOINT_WEIGHT), JOINT, name, bias)
        down, up = w.of("adapter, down", DOWN_WEIGHT), w.of("adapter, up", UP_WEIGHT)
        narrow = op.linear(tape, op.dropout(tape, x), down, NARROW, "adapter, down")
        more = _convolved(tape, narrow, up)
        more = op.scale(tape, self._padded(tape, more), "adapter, scaled")
        return op.add(tape, base, more, "adapted")

    def _padded(self, tape: Tape, x: Tensor) -> Tensor:
        """``zero_pad``: put among zeros, where the keys are. What was put in is kept."""
        zeros = tape.new("zeros", JOINT, "bf16")
        places = tape.new("places of the adapted features", PLACES, "int64")
        if not self.one_sequence:
            x = _copied(tape, x, "adapter's output by tokens")

        def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
            return (tape.new("gradient of what was put in", ADAPTED, "bf16"),)

        node = tape.node("index_copy", [x], backward, [(x, SOURCE), (places, RUNS)])
        padded = tape.new("adapter's output among zeros", JOINT, "bf16")
        del zeros
        tape.attach(node, padded)
        return padded

    def _mlp(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        has_bias = self.shape.bias

        def wide(name: str) -> Tensor:
            bias = w.optional(has_bias, f"{name} bias", "f")
            return op.linear(tape, x, w(name, "f", "h"), WIDE, name, bias)

        with tape.module("mlp"):
            if self.shape.gated:
                gate, up = wide("gate"), wide("up")
                inner = op.multiply(tape, op.silu(tape, gate), up, "gated")
            else:
                inner = op.gelu(tape, wide("up"))
            bias = w.optional(has_bias, "down bias", "h")
            return op.linear(tape, inner, w("down", "h", "f"), TOKENS, "down", bias)


_TRAINED = ("adapter, down", "adapter, up")


def _freeze(weight: Parameter) -> None:
    weight.trainable = weight.name in _TRAINED


def _rope(tape: Tape, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    half = x.numel / 2
    first, second = op.part(tape, x, half), op.part(tape, x, half)
    other = op.joined(tape, [op.negate(tape, second), first], "half rotated")
    cos, sin = turn
    turned = op.add(tape, op.multiply(tape, x, cos), op.multiply(tape, other, sin))
    return op.cast(tape, turned, x.dtype, "turned")


def _copied(tape: Tape, x: Tensor, name: str) -> Tensor:
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
