"""One pipeline stage of Megatron-Core, operation by operation, on one of the GPUs that share it.

Megatron-Core 0.16 with Transformer Engine's parts: core/models/gpt/gpt_model.py,
core/transformer/attention.py and mlp.py, core/tensor_parallel/layers.py and cross_entropy.py. All
sizes are those of one GPU: its heads, its share of the widths and of the vocabulary.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.backward import BackwardPass
from ..autograd.memory import WORKING
from ..autograd.operations import context
from ..autograd.operations import transformer_engine as te
from ..autograd.operations.common import MASKED, TARGETS
from ..autograd.reentrant import run_twice
from ..autograd.tape import Tape, as_input
from ..autograd.tensors import Argument, Grads, Tensor
from ..autograd.weights import Weights
from ..categories import Category
from ..formula import Formula, as_formula, product, symbol, total
from ..records import dataclass
from .megatron_experts import Dispatcher, ExpertStructure, mixture
from .megatron_latent import Core, latent_attention
from .sizes import (
    HEAD_ROWS,
    KEY_HEAD_ROWS,
    KEYS,
    LOGITS,
    OWN_ROWS,
    OWN_TOKENS,
    QUERIES,
    ROWS,
    TOKENS,
    WIDE,
)

ONE = as_formula(1)
QKV = total((QUERIES, KEYS, KEYS))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStructure:
    """What decides the order of a stage's events, apart from any size.

    ``split``: several GPUs share each layer; ``shares_tokens``: and the tokens between its
    products (sequence parallelism). ``context`` is how GPUs that share a sequence exchange what
    attention reads ("ring", "all-gather", "ulysses"), or "none". ``first`` and ``last``: the stage
    has the embedding, the head. ``grouped``: several query heads share a key
    head; ``normed``: each head's queries and keys are normalised. ``latent``: what attention has
    latents of: "none", "keys" (and values), "all" (queries too). ``experts``: what the layers have
    for a feed-forward layer, if a mixture. ``recompute`` is "none", "selective" (the attention
    core) or "full"; ``loss`` "full" or "fused". ``style`` is whose code it is: "megatron" or
    "nanotron".
    """

    split: bool
    shares_tokens: bool
    first: bool
    last: bool
    tied: bool
    grouped: bool
    one_sequence: bool
    qkv_bias: bool
    recompute: str
    loss: str
    context: str = "none"
    style: str = "megatron"
    normed: bool = False
    latent: str = "none"
    experts: ExpertStructure | None = None

    @property
    def own_tokens(self) -> Formula:
        """The residual stream on one GPU."""
        return OWN_TOKENS if self.shares_tokens else TOKENS

    @property
    def own_rows(self) -> Formula:
        """One number for each of the same tokens."""
        return OWN_ROWS if self.shares_tokens else ROWS


class Stage:
    """The weights of a stage, and its forward pass."""

    def __init__(self, structure: StageStructure, layers: int, dense: int = 0) -> None:
        self.structure = structure
        self.outer = Weights("bf16")
        #: Layers without experts, which come first, and the others.
        self.dense = [Weights("bf16") for _ in range(dense)]
        self.layers = [Weights("bf16") for _ in range(layers)]
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
            x = op.rms_norm(tape, x, self.outer("final norm", "h"), structure.own_rows)
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
        if again and isinstance(edge, Argument):
            # What its first layer's graph goes on holding is not given away: autograd copies it.
            with tape.as_category(WORKING):
                edge.grad = tape.new("gradient for the stage before", edge.numel, edge.dtype)

    # -- before the layers ---------------------------------------------------------------------

    def _embedded(self, tape: Tape, batch: Batch) -> Tensor:
        """``VocabParallelEmbedding``: rows that other GPUs hold are zeros until all are summed."""
        structure = self.structure
        ids = batch.tokens
        assert ids is not None
        table = self.outer("embedding", "V", "h")
        mask = None
        with tape.module("embedding"):
            if structure.split:
                mask = elsewhere(tape)
                own = tape.new("token ids", ROWS, "int64")
                ids = tape.new("token ids, from this GPU's first", ROWS, "int64")
                del own
            x = op.embedding(tape, ids, table, TOKENS, "embedded tokens")
            if mask:
                x = _zeroed(tape, x, mask)
            del ids, mask
            if not structure.shares_tokens:
                # The sum over the GPUs is made in place.
                x = op.view(tape, x)
                return x if structure.one_sequence else te.copied(tape, x, "in order of tokens")
            if not structure.one_sequence:
                x = te.copied(tape, x, "in order of tokens")
            x = _scattered(tape, x)
            return te.copied(tape, x, "embedded tokens of this GPU")

    # -- a layer -------------------------------------------------------------------------------

    def _layer(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        if self.structure.recompute == "full":
            return run_twice(tape, lambda x: self._layer_once(tape, x, w), x)
        return self._layer_once(tape, x, w)

    def _layer_once(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        x = op.add(tape, x, self._attention(tape, x, w), "residual stream")
        if w in self.dispatchers:
            return op.add(tape, x, self._mixture(tape, x, w), "residual stream")
        return op.add(tape, x, self._mlp(tape, x, w), "residual stream")

    def _mixture(self, tape: Tape, x: Tensor, w: Weights) -> Tensor:
        structure = self.structure
        assert structure.experts
        with tape.module("mlp norm"):
            x = op.rms_norm(tape, x, w("mlp norm", "h"), structure.own_rows)
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
            )
            # The three go on being held by a variable until attention is done.
            parts = op.split(tape, op.view(tape, joined), (QUERIES, KEYS, KEYS))
            if structure.grouped:
                parts[0] = te.copied(tape, parts[0], "queries, side by side")
            if structure.normed:
                parts[0] = op.rms_norm(tape, parts[0], w("query norm", "e"), HEAD_ROWS)
                parts[1] = op.rms_norm(tape, parts[1], w("key norm", "e"), KEY_HEAD_ROWS)
            q = te.rope(tape, parts[0], "queries turned")
            k = te.rope(tape, parts[1], "keys turned")

            def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                v = te.copied(tape, v, "values, side by side")
                if structure.context != "none":
                    return context.WAYS[structure.context](tape, q, k, v, HEAD_ROWS)
                return te.attention_kernel(tape, q, k, v, QUERIES, HEAD_ROWS)

            seen = (
                run_twice(tape, core, q, k, parts[2])
                if structure.recompute == "selective"
                else core(q, k, parts[2])
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
        with tape.module("mlp"):
            inner = te.norm_and_linear(
                tape,
                x,
                w("mlp norm", "h"),
                w("gate and up", 2, "f", "h"),
                self.structure.own_rows,
                WIDE * 2,
                "gate and up",
                gathered=self.gathered,
            )
            # One variable: what goes into the activation is held no longer than until it is done.
            inner = te.activated(tape, op.view(tape, inner), WIDE, "SwiGLU output")
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
        structure = self.structure
        weight = self.outer("embedding" if structure.tied and structure.first else "head", "V", "h")
        tape.mark("forward", "head")
        with tape.as_category(Category.LOGITS), tape.module("head"):
            logits = te.head(tape, x, weight, LOGITS, gathered=self.gathered)
        del x
        tape.mark("forward", "loss")
        with tape.module("loss"):
            labels = batch.labels
            if not structure.one_sequence:
                labels = tape.new("labels in order of tokens", ROWS, "int64")
            losses = (loss_in_place if structure.loss == "fused" else loss_of_parts)(tape, logits)
            if not structure.one_sequence:
                losses = te.copied(tape, losses, "each token's loss, by sequence")
            del logits, labels
            return _summed(tape, losses, batch)


class Batch:
    """What a stage reads of the batch: the first the tokens, the last what is to be predicted."""

    __slots__ = ("counts", "labels", "places", "tokens")

    def __init__(self, tape: Tape, structure: StageStructure) -> None:
        tape.mark("forward", "inputs")
        self.tokens = self.places = self.labels = self.counts = None
        if structure.first:
            self.tokens = tape.new("token ids", ROWS, "int64")
            self.places = tape.new("positions", ROWS, "int64")
        if structure.last:
            self.labels = tape.new("labels", ROWS, "int64")
            self.counts = tape.new("which tokens count", ROWS, "fp32")


def elsewhere(tape: Tape) -> Tensor:
    """Which ids' rows another GPU holds."""
    below = tape.new("ids below this GPU's", ROWS, "bool")
    above = tape.new("ids above this GPU's", ROWS, "bool")
    either = tape.new("ids of other GPUs", ROWS, "bool")
    del below, above
    return either


def _zeroed(tape: Tape, x: Tensor, mask: Tensor) -> Tensor:
    """``x[mask] = 0``, in place."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient, zero where masked", TOKENS, "bf16"),)

    node = tape.node("index_put", [x], backward, [(mask, MASKED)])
    y = x.detached()
    tape.attach(node, y)
    return y


def _scattered(tape: Tape, x: Tensor) -> Tensor:
    """The sum over the GPUs, each its own tokens of it; back, those of all are gathered."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of the embedded tokens, gathered", TOKENS, "bf16"),)

    node = tape.node("reduce_scatter", [x], backward)
    y = tape.new("embedded tokens, scattered", OWN_TOKENS, "bf16")
    tape.attach(node, y)
    return y


def loss_of_parts(tape: Tape, logits: Tensor) -> Tensor:
    """``_VocabParallelCrossEntropy``: what it makes of the logits in 32 bits it does in place.

    It keeps the softmax, which going back becomes the gradient, and then is cast to 16 bits.
    """
    softmaxes: list[Tensor] = []

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        numbers = tape.new("row numbers", ROWS, "int64")
        mask = tape.new("ids of other GPUs, as numbers", ROWS, "fp32")
        change = tape.new("what is taken off the softmax", ROWS, "fp32")
        del mask
        tape.new("softmax of the labels", ROWS, "fp32")
        del numbers, change
        grads.clear()  # a function of Megatron's own has dropped it before its result is cast
        return (softmaxes.pop(),)

    with tape.as_category(Category.LOGITS):
        node = tape.node("cross-entropy", [logits], backward)
        softmax = tape.new("softmax", LOGITS, "fp32")
    highest = tape.new("highest logit of each row", ROWS, "fp32")
    tape.new("where the highest logit is", ROWS, "int64")
    mask = elsewhere(tape)
    ids = tape.new("labels", ROWS, "int64")
    own = tape.new("labels, from this GPU's first", ROWS, "int64")
    del ids
    numbers = tape.new("row numbers", ROWS, "int64")
    found = tape.new("logits of the labels", ROWS, "fp32")
    predicted = tape.new("logits of the labels, copied", ROWS, "fp32")
    del found
    sums = tape.new("sum of each row", ROWS, "fp32")
    del numbers
    logs = tape.new("logarithms of the sums", ROWS, "fp32")
    loss = tape.new("each token's loss", ROWS, "fp32")
    del logs, highest, predicted, sums
    softmaxes.append(softmax.detached())
    tape.attach(node, loss, saves=[(softmax, SOFTMAX), (mask, TARGETS), (own, TARGETS)])
    return loss


def loss_in_place(tape: Tape, logits: Tensor) -> Tensor:
    """Transformer Engine's ``parallel_cross_entropy``: the gradient takes the logits' place.

    pytorch/triton/cross_entropy.py: the same kernel that finds the loss writes it.
    """
    gradients = [logits.detached()]

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (gradients.pop(),)

    with tape.as_category(Category.LOGITS):
        node = tape.node("cross-entropy", [logits], backward, [(logits, IN_PLACE)])
    loss = tape.new("each token's loss", ROWS, "fp32")
    own = tape.new("highest, sum and label's logit of each row", ROWS * 3, "fp32")
    every = tape.new("the same of every GPU", ROWS * 3 * symbol("t"), "fp32")
    del own, every
    tape.attach(node, loss)
    return loss


def _summed(tape: Tape, losses: Tensor, batch: Batch) -> Tensor:
    """The loss: those of the tokens that count, summed, over the micro-batches."""
    counts = batch.counts
    assert counts is not None
    counted = op.multiply(tape, op.view(tape, losses), counts, "losses that count")
    loss = op.summed(tape, counted, ONE, "loss")
    del counted
    return _scaled_in_place(tape, _scaled_in_place(tape, loss))


def _scaled_in_place(tape: Tape, x: Tensor) -> Tensor:
    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient scaled", ONE, "fp32"),)

    node = tape.node("mul", [x], backward)
    y = x.detached()
    tape.attach(node, y)
    return y


SOFTMAX = "The loss's gradient is the softmax, less one at the label."
IN_PLACE = "The kernel that finds the loss writes its gradient over the logits."
QKV_WEIGHTS = total((product(("a", "e", "h")), product((2, "g", "e", "h"))))
QKV_BIAS = total((product(("a", "e")), product((2, "g", "e"))))
OUTPUT_WEIGHTS = product(("h", "a", "e"))
