"""Cross-entropy of logits whose vocabulary several GPUs share.

torch/distributed/tensor/parallel/loss.py of PyTorch 2.13: each GPU takes the softmax of its part of
the vocabulary, with maxima and sums over all parts.
"""

from __future__ import annotations

from ...formula import Formula, as_formula
from ..tape import Tape
from ..tensors import Grads, Tensor
from .common import ARGUMENT, TARGETS, passed
from .parallel import others_rows, shifted_ids

ONE = as_formula(1)


def cross_entropy(tape: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss; ``logits`` are in 32 bits."""
    return _loss(tape, _log_softmax(tape, logits, targets), targets)


def _log_softmax(tape: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    rows, numel = targets.numel, logits.numel
    node = tape.node("log_softmax", [logits], passed)
    largest = tape.new("largest logit here", rows, "fp32")
    of_all = tape.new("largest logit of all GPUs", rows, "fp32")
    del largest
    less = tape.new("logits less the largest", numel, "fp32")
    powers = tape.new("exponentials", numel, "fp32")
    total = tape.new("sum of exponentials here", rows, "fp32")
    del powers
    of_every = tape.new("sum of exponentials of all GPUs", rows, "fp32")
    del total
    logarithm = tape.new("logarithm of the sum", rows, "fp32")
    scores = tape.new("log-probabilities", numel, "fp32")
    del less, of_all, of_every, logarithm
    tape.attach(node, scores, saves=[(scores, ARGUMENT)])
    return scores


def _loss(tape: Tape, scores: Tensor, targets: Tensor) -> Tensor:
    rows, numel = targets.numel, scores.numel

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        mean = tape.new("gradient of the mean", ONE, "fp32")
        safe = _safe_targets(tape, rows)
        onto = tape.new("minus one at each target", numel, "fp32")
        others = others_rows(tape, rows)
        own = shifted_ids(tape, rows)
        mask = tape.new("targets here, in fp32", rows, "fp32")
        values = tape.new("what is put there", rows, "fp32")
        del mask
        places = tape.new("places of the rows", rows, "int64")
        kept = tape.new("targets that count", rows, "bool")
        each = tape.new("gradient of each token's loss", rows, "fp32")
        del kept, mean
        powers = tape.new("probabilities", numel, "fp32")
        apart = tape.new("probabilities less the targets", numel, "fp32")
        del powers
        gradient = tape.new("gradient of the logits", numel, "fp32")
        del apart, each, safe, onto, others, own, values, places
        return (gradient,)

    node = tape.node("nll_loss", [scores], backward, [(scores, ARGUMENT), (targets, TARGETS)])
    safe = _safe_targets(tape, rows)
    others = others_rows(tape, rows)
    own = shifted_ids(tape, rows)
    picked = tape.new("log-probability of each target here", rows, "fp32")
    del others
    of_all = tape.new("log-probability of each target", rows, "fp32")
    negative = tape.new("each token's loss", rows, "fp32")
    counted = tape.new("targets that count", rows, "bool")
    each = tape.new("each token's loss, if it counts", rows, "fp32")
    del counted, negative
    counted = tape.new("targets that count", rows, "bool")
    number = tape.new("number of targets", ONE, "int64")
    del counted
    weight = tape.new("loss's total weight", ONE, "fp32")
    del number
    total = tape.new("sum of the losses", ONE, "fp32")
    loss = tape.new("loss", ONE, "fp32")
    del total, each, safe, own, picked, of_all
    tape.attach(node, loss, saves=[(weight, ARGUMENT)])
    return loss


def _safe_targets(tape: Tape, rows: Formula) -> Tensor:
    """The targets, 0 where none counts."""
    kept = tape.new("targets that count", rows, "bool")
    safe = tape.new("targets, or 0", rows, "int64")
    del kept
    return safe
