"""litgpt's model, its adapters and its loss as they were in 2023, on the calculator's own tape.

Lightning-AI/litgpt, lit_gpt/model.py, lora.py, adapter.py, adapter_v2.py, rmsnorm.py, utils.py
(chunked_cross_entropy) and finetune/*.py, as read in versions of some months around the benchmark's
(commit 8641822, October 2023); Lightning Fabric 2.1.0, wrappers.py and plugins/precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litgpt_lora import JOINT, adapted, copied
from litgpt_products import Products
from litgpt_prompt import FIRST, attended, prompt_of
from litgpt_prompt import JOINT as PROMPTS_JOINT
from measured_losses import CUBLAS_BYTES
from training_memory.autograd import operations as op
from training_memory.autograd.backward import BackwardPass
from training_memory.autograd.tape import Tape
from training_memory.autograd.tensors import Parameter, Tensor
from training_memory.autograd.weights import Weights
from training_memory.blocks.sizes import HEAD_ROWS, QUERIES, ROTARY, ROWS, TOKENS, WIDE
from training_memory.categories import Category
from training_memory.formula import Formula, as_formula, product, symbol

JOINT_WEIGHT = 3 * product(("h", "a", "e"))
JOINT_BIAS = 3 * product(("a", "e"))


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
    """A model of so many layers alike, and its forward and backward pass.

    ``adapter`` is "lora", "adapter" or "adapter-v2", the last two with prompts in all but the first
    layers, which come before those ``layers``. ``bits`` is "16", "nf4" or "nf4-dq".
    """

    def __init__(
        self, shape: Shape, layers: int, *, adapter: str, bits: str, one_sequence: bool
    ) -> None:
        self.shape = shape
        self.adapter = adapter
        self.product = Products(bits, shifts=adapter == "adapter-v2")
        self.one_sequence = one_sequence
        self.early_layers = 0 if adapter == "lora" else FIRST
        self.outer, *rest = (Weights("bf16", self._freeze) for _ in range(1 + FIRST + layers))
        self.early, self.layers = rest[: self.early_layers], rest[FIRST:]

    def _freeze(self, weight: Parameter) -> None:
        weight.trainable = weight.name.removesuffix(" bias") in _TRAINED[self.adapter] or (
            self.adapter == "adapter-v2" and weight.name.endswith((" shift", " scale"))
        )

    def made(self) -> Sequence[tuple[Parameter, int]]:
        """Every parameter of the outside and of a layer, and how many there are of it."""
        alike = self.shape.layers - self.early_layers
        return [
            *((one, 1) for w in (self.outer, *self.early) for one in w.made.values()),
            *((one, alike) for one in self.layers[0].made.values()),
        ]

    def weights(self, values: Mapping[str, int]) -> Sequence[int]:
        """The bytes of every parameter, as the allocator holds them."""
        return [times * self.product.bytes_of(one, values) for one, times in self.made()]

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
        tape.mark("backward", "embedding")
        self.product.inputs.clear()
        del held, ids, logits

    def _forward(
        self, tape: Tape, ids: Tensor, turn: tuple[Tensor, Tensor], chunks: int
    ) -> list[Tensor]:
        """The logits of each chunk."""
        tape.mark("forward", "embedding")
        x = op.embedding(tape, ids, self.outer("embedding", "V", "h"), TOKENS, "embedded tokens")
        for w in self.early:  # no repeats, so still the part before them
            x = self._block(tape, x, w, turn, prompted=False)
        for index, w in enumerate(self.layers):
            tape.mark("forward", "layer", index)
            x = self._block(tape, x, w, turn, prompted=self.adapter != "lora")
        tape.mark("forward", "head")
        x = self._norm(tape, x, self.outer, "final norm")
        sizes = [symbol("c")] * (chunks - 1) + [symbol("r")]
        parts = op.split(tape, x, [size * symbol("h") for size in sizes])
        with tape.as_category(Category.LOGITS):
            return [
                self.product(
                    tape,
                    part,
                    self.outer,
                    "head",
                    of=product(("V", "h")),
                    features=symbol("V"),
                    numel=size * symbol("V"),
                    bias=self.shape.head_bias,
                )
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
                rows[-1] = copied(tape, rows[-1], "the last chunk's logits, without the last")
        losses = [op.cross_entropy(tape, one, targets) for one in rows]
        return op.scale(tape, op.joined(tape, losses, "losses"), "mean loss")

    def _block(
        self, tape: Tape, x: Tensor, w: Weights, turn: tuple[Tensor, Tensor], *, prompted: bool
    ) -> Tensor:
        first = self._norm(tape, x, w, "attention norm")
        seen = self._attention(tape, first, w, turn, prompted=prompted)
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

    def _attention(
        self, tape: Tape, x: Tensor, w: Weights, turn: tuple[Tensor, Tensor], *, prompted: bool
    ) -> Tensor:
        with tape.module("attention"):
            joint = self._joint(tape, x, w, JOINT)
            if self.adapter == "lora":
                joint = adapted(tape, x, w, joint, one_sequence=self.one_sequence)
            # Each is a view; of the values' what is kept is the whole that they are a part of.
            q, k, v = op.split(tape, joint, [QUERIES] * 3)
            q, k = (self._turned(tape, op.heads(tape, one), turn) for one in (q, k))
            y = op.fused_attention(tape, q, k, op.heads(tape, v), HEAD_ROWS)
            y = op.by_tokens(tape, y, "context in token order")
            if prompted:
                joint = self._joint(tape, prompt_of(tape, w), w, PROMPTS_JOINT)
                y = attended(tape, q, joint, y, w("prompt gate", "a"))
            return self.product(
                tape,
                y,
                w,
                "attention output",
                of=product(("h", "a", "e")),
                features=symbol("h"),
                numel=TOKENS,
                bias=self.shape.bias,
            )

    def _joint(self, tape: Tape, x: Tensor, w: Weights, numel: Formula) -> Tensor:
        return self.product(
            tape,
            x,
            w,
            "query, key and value",
            of=JOINT_WEIGHT,
            features=JOINT_BIAS,
            numel=numel,
            bias=self.shape.bias,
        )

    def _turned(self, tape: Tape, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """``apply_rope`` of the first features, and the others after them."""
        share = QUERIES / self.shape.turned_in
        parts = [_rope(tape, op.part(tape, x, share), turn)]
        if self.shape.turned_in > 1:
            parts.append(op.part(tape, x, QUERIES - share))
        return op.joined(tape, parts, "rotated")

    def _mlp(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        def wide(name: str) -> Tensor:
            return self.product(
                tape,
                x,
                w,
                name,
                of=product(("f", "h")),
                features=symbol("f"),
                numel=WIDE,
                bias=self.shape.bias,
            )

        with tape.module("mlp"):
            if self.shape.gated:
                gate, up = wide("gate"), wide("up")
                inner = op.multiply(tape, op.silu(tape, gate), up, "gated")
            else:
                inner = op.gelu(tape, wide("up"))
            return self.product(
                tape,
                inner,
                w,
                "down",
                of=product(("h", "f")),
                features=symbol("h"),
                numel=TOKENS,
                bias=self.shape.bias,
            )


_PROMPTED = frozenset({"prompt", "prompt gate"})
#: What is trained, by its names without "bias"; of the second adapter, its shifts and scales too.
_TRAINED = {
    "lora": frozenset({"adapter, down", "adapter, up"}),
    "adapter": _PROMPTED,
    "adapter-v2": _PROMPTED | {"attention norm", "mlp norm", "final norm"},
}


def _rope(tape: Tape, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    half = x.numel / 2
    first, second = op.part(tape, x, half), op.part(tape, x, half)
    other = op.joined(tape, [op.negate(tape, second), first], "half rotated")
    cos, sin = turn
    turned = op.add(tape, op.multiply(tape, x, cos), op.multiply(tape, other, sin))
    return op.cast(tape, turned, x.dtype, "turned")
