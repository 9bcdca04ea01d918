"""One pipeline stage of nanotron, operation by operation, on one of the GPUs that share it.

nanotron 0.4, src/nanotron/models/llama.py and parallel/tensor_parallel/; flash-attn 2.5,
layers/rotary.py and ops/triton/layer_norm.py. Weights' gradients are PyTorch's own, in 16 bits, and
are added to a 32-bit buffer once a backward pass is done.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.backward import BackwardPass
from ..autograd.operations import transformer_engine as te
from ..autograd.operations.common import MASKED
from ..autograd.tape import Tape
from ..autograd.tensors import Grads, Tensor
from ..autograd.weights import Weights
from ..categories import Category
from .megatron import OUTPUT_WEIGHTS, QKV, QKV_WEIGHTS, Stage
from .megatron_ends import ONE, Batch, elsewhere, loss_of_parts
from .sizes import HEAD_ROWS, KEYS, LOGITS, OWN_TOKENS, QUERIES, ROWS, TOKENS, WIDE


class NanotronStage(Stage):
    """The weights of a stage, and its passes."""

    def run_backward(self, tape: Tape, start: tuple[Tensor, Tensor | None]) -> None:
        """PyTorch's backward pass; then every weight's gradient is added to its buffer."""
        output, gradient = start
        going = BackwardPass(tape)
        if gradient is None:
            going.run(output)
        else:
            going.run_from(output.edge, gradient)
        for name, index, weights in (
            ("embedding", 0, self.outer),
            *(("layer", index, one) for index, one in enumerate(self.layers)),
        ):
            tape.mark("backward", name, index)
            weights.forget_gradients()

    def _embedded(self, tape: Tape, batch: Batch) -> Tensor:
        structure = self.structure
        ids, mask = batch.tokens, None
        assert ids is not None
        with tape.module("embedding"):
            if structure.split:
                mask = elsewhere(tape)
                own = tape.new("token ids", ROWS, "int64")
                ids = tape.new("token ids, from this GPU's first", ROWS, "int64")
                del own
            x = op.embedding(
                tape, ids, self.outer("embedding", "V", "h"), TOKENS, "embedded tokens"
            )
            if mask:
                x = _masked(tape, x, mask)
            return self._scattered(tape, x, "embedded tokens")

    def _layer_once(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        x = op.add(tape, self._attention(tape, self._norm(tape, x, w, "attention norm"), w), x)
        return op.add(tape, self._mlp(tape, self._norm(tape, x, w, "mlp norm"), w), x)

    def _norm(self, tape: Tape, x: Tensor, w: Weights, name: str) -> Tensor:
        """A Triton kernel that keeps its input and its spread."""
        with tape.module(name):
            return op.rms_norm(tape, x, w(name, "h"), self.structure.own_rows)

    def _attention(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        with tape.module("attention"):
            total = self._gathered(tape, x)
            del x
            made = op.linear(
                tape, total, w.of("query, key and value", QKV_WEIGHTS), QKV, "query, key and value"
            )
            del total
            if self.structure.grouped:
                # Each is copied by itself, so that its memory lies by sequences.
                q, k, v = (
                    _by_sequence(tape, part, name)
                    for part, name in zip(
                        op.split(tape, made, (QUERIES, KEYS, KEYS)), _NAMES, strict=True
                    )
                )
            else:
                q, k, v = op.split(
                    tape, _by_sequence(tape, made, "all three"), (QUERIES, KEYS, KEYS)
                )
            # Rotary positions are put in place, so what is kept of the queries is the whole tensor
            # that they are a part of.
            both = op.joined(tape, (k, v), "keys and values, one after the other")
            both = te.copied(tape, both, "keys and values, side by side")
            k, v = op.split(tape, both, (KEYS, KEYS))
            seen = te.attention_kernel(tape, q, k, v, QUERIES, HEAD_ROWS)
            if not self.structure.one_sequence:
                seen = te.copied(tape, seen, "context in order of tokens")
            projected = op.linear(
                tape, seen, w.of("attention output", OUTPUT_WEIGHTS), TOKENS, "attention output"
            )
            return self._scattered(tape, projected, "attention output")

    def _mlp(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        with tape.module("mlp"):
            total = self._gathered(tape, x)
            del x
            made = op.linear(tape, total, w("gate and up", 2, "f", "h"), WIDE * 2, "gate and up")
            del total
            gate, up = op.chunk(tape, made)
            inner = op.multiply(tape, op.silu(tape, gate), up, "gated")
            down = op.linear(tape, inner, w("down", "h", "f"), TOKENS, "down")
            return self._scattered(tape, down, "down")

    def _loss(self, tape: Tape, x: Tensor, batch: Batch) -> Tensor:
        structure = self.structure
        weight = self.outer("embedding" if structure.tied and structure.first else "head", "V", "h")
        tape.mark("forward", "head")
        with tape.as_category(Category.LOGITS), tape.module("head"):
            total = self._gathered(tape, x)
            del x
            logits = op.linear(tape, total, weight, LOGITS, "logits")
            del total
        tape.mark("forward", "loss")
        with tape.module("loss"):
            with tape.as_category(Category.LOGITS):
                logits = op.cast(tape, logits, "fp32", "logits in fp32")
            losses = loss_of_parts(tape, logits)
            del logits
            assert batch.counts is not None
            counted = op.multiply(tape, losses, batch.counts, "losses that count")
            return op.scale(
                tape, op.summed(tape, counted, ONE, "loss"), "loss over the micro-batches"
            )

    def _gathered(self, tape: Tape, x: Tensor) -> Tensor:
        """``differentiable_all_gather``: the product keeps what was gathered."""
        if not self.structure.shares_tokens:
            return op.view(tape, x)

        def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
            return (tape.new("gradient, scattered", OWN_TOKENS, "bf16"),)

        node = tape.node("all_gather", [x], backward)
        y = tape.new("norm output, gathered", TOKENS, "bf16")
        tape.attach(node, y)
        return y

    def _scattered(self, tape: Tape, x: Tensor, name: str) -> Tensor:
        """``differentiable_reduce_scatter_sum``; without shared tokens a sum in place."""
        if not self.structure.shares_tokens:
            return op.view(tape, x)

        def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
            return (tape.new("gradient, gathered", TOKENS, "bf16"),)

        node = tape.node("reduce_scatter", [x], backward)
        y = tape.new(f"{name}, scattered", OWN_TOKENS, "bf16")
        tape.attach(node, y)
        return y


_NAMES = ("queries", "keys", "values")


def _masked(tape: Tape, x: Tensor, mask: Tensor) -> Tensor:
    """``x * mask``, which keeps the mask."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient, zero where masked", TOKENS, "bf16"),)

    node = tape.node("mul", [x], backward, [(mask, MASKED)])
    y = tape.new("embedded tokens, zero where masked", TOKENS, "bf16")
    tape.attach(node, y)
    return y


def _by_sequence(tape: Tape, x: Tensor, name: str) -> Tensor:
    """``permute(…).contiguous()`` of a product's output: a copy, and going back another."""
    numel, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new(f"gradient of {name}, by tokens", numel, dtype),)

    node = tape.node("clone", [x], backward)
    y = tape.new(f"{name}, by sequence", numel, dtype)
    tape.attach(node, y)
    return y
