"""One pipeline stage of Megatron-Core, operation by operation, on one of the GPUs that share it.

Megatron-Core 0.16 with Transformer Engine's parts: core/models/gpt/gpt_model.py,
core/transformer/attention.py and mlp.py, core/tensor_parallel/layers.py and cross_entropy.py. All
sizes are those of one GPU: its heads, its share of the widths and of the vocabulary.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.backward import BackwardPass
from ..autograd.memory import WORKING, PartOf
from ..autograd.operations import context
from ..autograd.operations import transformer_engine as te
from ..autograd.reentrant import run_twice
from ..autograd.tape import Tape, as_input
from ..autograd.tensors import Argument, Parameter, Tensor
from ..autograd.weights import Weights
from ..categories import Category
from ..formula import Formula, product, total
from .megatron_ends import Batch, embedded, loss_in_place, loss_of_parts, summed
from .megatron_experts import Dispatcher, mixture
from .megatron_latent import Core, latent_attention
from .megatron_predicting import Predicting, rolled, with_further_loss
from .megatron_structure import StageStructure
from .sizes import (
    HEAD_ROWS,
    KEY_HEAD_ROWS,
    KEYS,
    LOGITS,
    OWN_TOKENS,
    QUERIES,
    ROWS,
    TOKENS,
    WIDE,
)

QKV = total((QUERIES, KEYS, KEYS))


class Stage:
    """The weights of a stage, and its forward pass."""

    def __init__(self, structure: StageStructure, layers: int, dense: int = 0) -> None:
        self.structure = structure
        self.outer = Weights("bf16")
        #: Layers without experts, which come first, and the others.
        self.dense = [Weights("bf16") for _ in range(dense)]
        self.layers = [Weights("bf16") for _ in range(layers)]
        self.further = [Weights("bf16") for _ in range(structure.predicts)]
        #: What the stage before sent, whose gradient goes back to it.
        self.received: Tensor | None = None
        #: What each layer's dispatcher holds, from before the first forward pass on.
        self.dispatchers: dict[Weights, Dispatcher] = {}
        self.gathered = TOKENS if structure.shares_tokens else None
        self.scattered = OWN_TOKENS if structure.shares_tokens else None

    def forward(self, tape: Tape) -> Tensor:
        """The loss of a last stage, or else what the next stage is sent."""
        structure = self.structure
        if structure.experts:
            for index, weights in enumerate(self.layers):
                tape.mark("before", "layer", index)
                sent = index == 0 and not structure.first and not self.dense
                own = structure.own_tokens
                self.dispatchers[weights] = Dispatcher(tape, structure.experts, own, sent=sent)
            for index, weights in enumerate(self.further):
                tape.mark("before", "further layer", index)
                self.dispatchers[weights] = Dispatcher(
                    tape, structure.experts, structure.own_tokens, sent=False, inputs=2
                )
        batch = Batch(tape, structure)
        if structure.first:
            tape.mark("forward", "embedding")
            x = self._embedded(tape, batch)
        else:
            tape.mark("forward", "input")
            x = as_input(tape.new("input from the stage before", structure.own_tokens, "bf16"))
            self.received = x
        for name, layers in (("dense", self.dense), ("layer", self.layers)):
            for index, weights in enumerate(layers):
                tape.mark("forward", name, index)
                x = self._layer(tape, x, weights)
        if not structure.last:
            return x
        tape.mark("forward", "norm")
        with tape.module("final norm"):
            x = self._normed(tape, x, self.outer, "final norm")
        if structure.predicts:
            return self._further_loss(tape, self._further(tape, x, batch), batch)
        return self._loss(tape, x, batch)

    def run_backward(self, tape: Tape, start: tuple[Tensor, Tensor | None]) -> None:
        """From an output, or from its gradient; a weight's own gradient goes as it arrives."""
        output, gradient = start
        going = BackwardPass(tape, keeps=False)
        if gradient is None:
            going.run(output)
        else:
            going.run_from(output.edge, gradient)
        experts, edge = self.structure.experts, self.received and self.received.edge
        again = experts and experts.again and not self.dense
        if again and edge and isinstance(argument := edge[0], Argument):
            # What its first layer's graph goes on holding is not given away: autograd copies it.
            with tape.as_category(WORKING):
                name = "gradient for the stage before"
                argument.grad = tape.new(name, argument.numel, argument.dtype)

    def _embedded(self, tape: Tape, batch: Batch) -> Tensor:
        return embedded(tape, self.structure, batch, self.outer)

    # -- a layer -------------------------------------------------------------------------------

    def _layer(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        if self.structure.recompute == "full":
            return run_twice(tape, lambda x: self._layer_once(tape, x, w), x)
        return self._layer_once(tape, x, w)

    def _layer_once(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        masks: list[Tensor] = []  # which the layer's output leads to

        def joined(x: Tensor, made: Tensor, bias: Parameter | None) -> Tensor:
            drops = self.structure.drops
            if not (bias or drops):
                return op.add(tape, x, made, "residual stream")
            return te.bias_dropout_add(tape, made, bias, x, drops=drops, masks=masks)

        x = joined(x, self._attention(tape, x, w), self._bias(w, "attention output", "h"))
        if w in self.dispatchers:
            return joined(x, self._mixture(tape, x, w), None)
        return joined(x, self._mlp(tape, x, w), self._bias(w, "down", "h"))

    def _bias(self, w: Weights, name: str, *shape: str | int) -> Parameter | None:
        return w.optional(self.structure.biased, f"{name} bias", *shape)

    def _shift(self, w: Weights, name: str, width: str = "h") -> Parameter | None:
        return w.optional(self.structure.shifted, f"{name} bias", width)

    def _normed(
        self,
        tape: Tape,
        x: Tensor,
        w: Weights,
        name: str,
        width: str = "h",
        rows: Formula | None = None,
    ) -> Tensor:
        """``TENorm``."""
        rows, shift = rows or self.structure.own_rows, self._shift(w, name, width)
        if shift:
            return op.layer_norm(tape, x, w(name, width), shift, rows)
        return op.rms_norm(tape, x, w(name, width), rows)

    def _mixture(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        structure = self.structure
        assert structure.experts
        with tape.module("mlp norm"):
            x = self._normed(tape, x, w, "mlp norm")
        return mixture(tape, x, w, structure.experts, self.dispatchers[w], self.gathered)

    def _attention(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        structure = self.structure
        if structure.latent != "none":
            return self._latent(tape, x, w)
        with tape.module("attention"):
            joined = te.norm_and_linear(
                tape,
                x,
                w("attention norm", "h"),
                w.of("query, key and value", QKV_WEIGHTS),
                structure.own_rows,
                QKV,
                "query, key and value",
                gathered=self.gathered,
                bias=w.of("query, key and value bias", QKV_BIAS) if structure.qkv_bias else None,
                shift=self._shift(w, "attention norm"),
            )
            # The three go on being held by a variable until attention is done.
            parts = te.split_along_dim(tape, op.view(tape, joined), (QUERIES, KEYS, KEYS))
            if structure.grouped:
                parts[0] = te.copied(tape, parts[0], "queries, side by side")
            if structure.normed:
                parts[0] = self._normed(tape, parts[0], w, "query norm", "e", HEAD_ROWS)
                parts[1] = self._normed(tape, parts[1], w, "key norm", "e", KEY_HEAD_ROWS)
            q, k, v = parts
            if not structure.learned:
                q, k = te.rope(tape, q, "queries turned"), te.rope(tape, k, "keys turned")

            def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                # Transformer Engine takes them as they lie if all lie together, or all apart.
                if not structure.together:
                    if q.storage is not k.storage is v.storage:
                        k = te.copied(tape, k, "keys, side by side")
                    v = te.copied(tape, v, "values, side by side")
                if structure.context != "none":
                    return context.WAYS[structure.context](tape, q, k, v, HEAD_ROWS, QUERIES)
                return te.attention_kernel(tape, q, k, v, QUERIES, HEAD_ROWS)

            seen = (
                run_twice(tape, core, q, k, v, among=structure.together)
                if structure.recompute == "selective"
                else core(q, k, v)
            )
            return te.linear_and_scatter(
                tape,
                op.view(tape, seen),
                w.of("attention output", OUTPUT_WEIGHTS),
                TOKENS,
                "attention output projected",
                scattered=self.scattered,
            )

    def _latent(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        structure = self.structure

        def twice(core: Core, *given: Tensor) -> Tensor:
            again = structure.recompute == "selective"
            return run_twice(tape, core, *given) if again else core(*given)

        with tape.module("attention"):
            seen = latent_attention(
                tape,
                x,
                w,
                structure.own_rows,
                queries=structure.latent == "all",
                split=structure.shares_tokens,
                twice=twice,
                exchange=structure.context,
            )
            return te.linear_and_scatter(
                tape,
                seen,
                w("attention output", "h", "a", "v"),
                TOKENS,
                "attention output projected",
                scattered=self.scattered,
            )

    def _mlp(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        gated = self.structure.gated
        name, parts = ("gate and up", 2) if gated else ("up", 1)
        made = "SwiGLU output" if gated else "GELU output"
        with tape.module("mlp"):
            inner = te.norm_and_linear(
                tape,
                x,
                w("mlp norm", "h"),
                w(name, parts, "f", "h"),
                self.structure.own_rows,
                WIDE * parts,
                name,
                gathered=self.gathered,
                shift=self._shift(w, "mlp norm"),
            )
            # One variable: what goes into the activation is held no longer than until it is done.
            bias = self._bias(w, name, parts, "f")
            inner = te.activated(tape, op.view(tape, inner), WIDE, made, bias)
            return te.linear_and_scatter(
                tape,
                op.view(tape, inner),
                w("down", "h", "f"),
                TOKENS,
                "down",
                scattered=self.scattered,
            )

    # -- after the layers ----------------------------------------------------------------------

    def _loss(self, tape: Tape, x: Tensor, batch: Batch) -> Tensor:
        logits = self._logits(tape, x, ("head", 0))
        del x
        losses = self._losses(tape, logits, ("loss", 0))
        del logits
        return summed(tape, losses, batch)

    def _logits(self, tape: Tape, x: Tensor, part: PartOf) -> Tensor:
        structure = self.structure
        tied = structure.tied and (structure.first or structure.predicts > 0)
        weight = self.outer("embedding" if tied else "head", "V", "h")
        # Several products with one weight send several gradients that say nothing.
        shared = tied or structure.predicts > 0
        tape.mark("forward", *part)
        with tape.as_category(Category.LOGITS), tape.module("head"):
            return te.head(tape, x, weight, LOGITS, gathered=self.gathered, shared=shared)

    def _losses(self, tape: Tape, logits: Tensor, part: PartOf) -> Tensor:
        """``compute_language_model_loss``: each token's."""
        structure = self.structure
        tape.mark("forward", *part)
        with tape.module("loss"):
            labels = None
            if not structure.one_sequence:
                labels = tape.new("labels in order of tokens", ROWS, "int64")
            losses = (loss_in_place if structure.loss == "fused" else loss_of_parts)(tape, logits)
            if not structure.one_sequence:
                losses = te.copied(tape, losses, "each token's loss, by sequence")
            del labels
            return losses

    # -- tokens further on ---------------------------------------------------------------------

    def _further(self, tape: Tape, x: Tensor, batch: Batch) -> Tensor:
        """``MultiTokenPredictionBlock``: the last layer's states and those of each further one."""
        states, following = [x], batch
        for index, weights in enumerate(self.further):
            tape.mark("forward", "further layer", index)
            layer = Predicting(self.structure, self.outer, weights, self._layer_once, self._normed)
            x, following = layer.forward(tape, x, following)
            states.append(x)
        return op.joined(tape, states, "states of all layers")

    def _further_loss(self, tape: Tape, x: Tensor, batch: Batch) -> Tensor:
        structure = self.structure
        labels, counts = tape.new("labels, copied", ROWS, "int64"), batch.counts
        states = op.split(tape, x, [structure.own_tokens] * (1 + structure.predicts))
        x = states[0]
        held: list[Tensor] = []  # by variables, until each is given the next
        for index, state in enumerate(states[1:]):
            logits = self._logits(tape, state, ("further head", index))
            labels, held[:] = rolled(tape, "labels", "int64")[0], [logits]
            counts, sums = rolled(tape, "which tokens count", "fp32")
            losses = self._losses(tape, logits, ("further loss", index))
            losses = op.multiply(tape, op.view(tape, losses), counts, "losses that count")
            held.append(losses)
            x = with_further_loss(tape, x, losses, sums)
        loss = self._loss(tape, x, batch)
        del states, labels, counts, held
        return loss


QKV_WEIGHTS = total((product(("a", "e", "h")), product((2, "g", "e", "h"))))
QKV_BIAS = total((product(("a", "e")), product((2, "g", "e"))))
OUTPUT_WEIGHTS = product(("h", "a", "e"))
