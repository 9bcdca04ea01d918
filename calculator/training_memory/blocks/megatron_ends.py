"""What a Megatron stage does before its layers and after: embedding and loss.

Megatron-Core 0.16, core/models/common/embeddings/language_model_embedding.py,
core/tensor_parallel/layers.py and cross_entropy.py.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.operations import transformer_engine as te
from ..autograd.operations.common import MASKED, TARGETS
from ..autograd.tape import Tape
from ..autograd.tensors import Grads, Tensor
from ..autograd.weights import Weights
from ..categories import Category
from ..formula import as_formula, symbol
from .megatron_structure import StageStructure
from .sizes import LOGITS, OWN_TOKENS, ROWS, TOKENS

ONE = as_formula(1)


class Batch:
    """What a stage reads of the batch: the first the tokens, the last what is to be predicted."""

    __slots__ = ("counts", "labels", "places", "tokens")

    def __init__(self, tape: Tape, structure: StageStructure) -> None:
        tape.mark("forward", "inputs")
        self.tokens = self.places = self.labels = self.counts = None
        if structure.first or structure.predicts:
            self.tokens = tape.new("token ids", ROWS, "int64")
            self.places = tape.new("positions", ROWS, "int64")
        if structure.last:
            self.labels = tape.new("labels", ROWS, "int64")
            self.counts = tape.new("which tokens count", ROWS, "fp32")

    def further(self) -> Batch:
        """The same, to be moved on by a token."""
        other = object.__new__(Batch)
        other.tokens, other.places = self.tokens, self.places
        other.labels, other.counts = self.labels, self.counts
        return other


def elsewhere(tape: Tape) -> Tensor:
    """Which ids' rows another GPU holds."""
    below = tape.new("ids below this GPU's", ROWS, "bool")
    above = tape.new("ids above this GPU's", ROWS, "bool")
    either = tape.new("ids of other GPUs", ROWS, "bool")
    del below, above
    return either


def embedded(tape: Tape, structure: StageStructure, batch: Batch, outer: Weights) -> Tensor:
    """``LanguageModelEmbedding``: rows that other GPUs hold are zeros until all are summed."""
    with tape.module("embedding"):
        x, held = _words(tape, structure, batch, outer), []
        if structure.learned:
            assert batch.places is not None
            places = op.embedding(
                tape, batch.places, outer("positions", "P", "h"), TOKENS, "embedded positions"
            )
            held = [x, places]  # by variables, until all is done
            x = op.add(tape, x, places, "embedded tokens and positions")
            del places
        if not structure.one_sequence:
            x = te.copied(tape, x, "in order of tokens")
        if structure.shares_tokens:
            # Without positions each GPU gets the sum of its own tokens alone.
            x = (_own_part if structure.learned else _scattered)(tape, x)
            x = te.copied(tape, x, "embedded tokens of this GPU")
        x = op.dropout(tape, x, drops=structure.drops)
        del held
        return x


def _words(tape: Tape, structure: StageStructure, batch: Batch, outer: Weights) -> Tensor:
    """``VocabParallelEmbedding``."""
    ids, mask = batch.tokens, None
    assert ids is not None
    if structure.split:
        mask = elsewhere(tape)
        own = tape.new("token ids", ROWS, "int64")
        ids = tape.new("token ids, from this GPU's first", ROWS, "int64")
        del own
    x = op.embedding(tape, ids, outer("embedding", "V", "h"), TOKENS, "embedded tokens")
    if mask:
        x = _zeroed(tape, x, mask)
    # The sum over the GPUs is made in place.
    return op.view(tape, x)


def _own_part(tape: Tape, x: Tensor) -> Tensor:
    """A GPU's tokens of all, a view; back, those of all are gathered."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of the embedded tokens, gathered", TOKENS, "bf16"),)

    node = tape.node("split", [x], backward)
    y = x.part(OWN_TOKENS)
    tape.attach(node, y)
    return y


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


def summed(tape: Tape, losses: Tensor, batch: Batch) -> Tensor:
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
