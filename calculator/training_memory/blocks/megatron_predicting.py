"""Megatron's layers that predict tokens further on: multi-token prediction.

Megatron-Core 0.16, core/transformer/multi_token_prediction.py and core/models/gpt/gpt_model.py
(``_postprocess``); DeepSeek-V3, arXiv:2412.19437, section 2.2. Each layer reads what the one before
made of a token and the embedding of the token that follows; its output has a loss of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from ..autograd import operations as op
from ..autograd.operations import experts as moe
from ..autograd.operations.common import PRODUCT
from ..autograd.reentrant import run_twice
from ..autograd.tape import Tape
from ..autograd.tensors import Grads, Tensor
from ..autograd.weights import Weights
from ..formula import product, symbol
from .megatron_ends import ONE, Batch, embedded
from .megatron_structure import StageStructure
from .sizes import OWN_TOKENS, ROWS, TOKENS

#: Of the tokens' features those that one GPU's part of a product makes.
SHARE = product(("s", "b", "h")) / symbol("t")
#: Both states of a GPU's own tokens, side by side.
BOTH, ALL_BOTH = product((2, "z", "b", "h")), product((2, "s", "b", "h"))

Layer = Callable[[Tape, Tensor, Weights], Tensor]
Norm = Callable[[Tape, Tensor, Weights, str], Tensor]


def rolled(tape: Tape, name: str, dtype: str) -> tuple[Tensor, Tensor]:
    """``roll_tensor``: the next tokens', and their sum."""
    next_ = tape.new(f"{name} of the next tokens", ROWS, dtype)
    return next_, tape.new(f"sum of {name}", ONE, dtype)


class Predicting:
    """One such layer: its weights are ``own``, those of the model before it ``outer``."""

    def __init__(
        self, structure: StageStructure, outer: Weights, own: Weights, layer: Layer, norm: Norm
    ) -> None:
        self.structure = structure
        self.outer, self.own = outer, own
        self.layer, self.norm = layer, norm

    def forward(self, tape: Tape, x: Tensor, batch: Batch) -> tuple[Tensor, Batch]:
        """What it makes of each token; and the batch as it reads it, a token on."""
        following = batch.further()
        following.tokens, held = rolled(tape, "token ids", "int64")
        following.places, held = rolled(tape, "positions", "int64")
        words = embedded(tape, self.structure, following, self.outer)
        del held
        if self.structure.recompute == "full":
            return run_twice(tape, lambda *both: self._once(tape, *both), x, words), following
        return self._once(tape, x, words), following

    def _once(self, tape: Tape, x: Tensor, words: Tensor) -> Tensor:
        begin = self._together(tape, x, words)
        x = self.layer(tape, begin, self.own)
        del begin
        with tape.module("norm of a further layer"):
            return self.norm(tape, x, self.own, "norm of its output")

    def _together(self, tape: Tape, x: Tensor, words: Tensor) -> Tensor:
        structure, w = self.structure, self.own
        with tape.module("states together"):
            normed_words = self.norm(tape, words, w, "norm of the embedding")
            x = self.norm(tape, x, w, "norm of the state")
            x = op.joined(tape, [normed_words, x], "embedding and state")
            gathered = ALL_BOTH if structure.shares_tokens else None
            weight = w.of("states together", product((2, "h", "h")) / symbol("t"))
            made = SHARE if structure.split else TOKENS
            x = moe.column_linear(tape, x, weight, made, "states together", gathered)
            if structure.split:
                x = _features_of_all(tape, x)
            if structure.shares_tokens:
                x = _own_tokens(tape, x)
            del normed_words
            return x


def _features_of_all(tape: Tape, x: Tensor) -> Tensor:
    """``gather_from_tensor_model_parallel_region``: back, a GPU takes its own."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of states together, own", SHARE, "bf16"),)

    node = tape.node("gather", [x], backward)
    pieces = tape.new("states together, as they come", TOKENS, "bf16")
    y = tape.new("states together, side by side", TOKENS, "bf16")
    del pieces
    tape.attach(node, y)
    return y


def _own_tokens(tape: Tape, x: Tensor) -> Tensor:
    """A GPU's tokens of all, a view; back, those of all are gathered."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of states together, gathered", TOKENS, "bf16"),)

    node = tape.node("split", [x], backward)
    y = x.part(OWN_TOKENS)
    tape.attach(node, y)
    return y


def with_further_loss(tape: Tape, x: Tensor, losses: Tensor, counts: Tensor) -> Tensor:
    """``MTPLossAutoScaler``: what the further tokens cost begins its way back with x's gradient.

    ``counts``: how many tokens count, by which the losses are divided.
    """
    whole = op.summed(tape, losses, ONE, "sum of the further losses")
    _divided(tape, whole, counts)
    del whole
    losses = op.scale(tape, losses, "further losses, weighed")
    losses = _divided(tape, losses, counts)

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor, Tensor]:
        (x_gradient,) = grads
        assert x_gradient is not None
        ones = tape.new("ones", ROWS, "fp32")
        scaled = tape.new("ones, scaled", ROWS, "fp32")
        del ones
        return x_gradient, scaled

    node = tape.node("further loss", [x, losses], backward, [(losses, PRODUCT)])
    y = x.detached()
    tape.attach(node, y)
    return y


def _divided(tape: Tape, x: Tensor, by: Tensor) -> Tensor:
    numel = x.numel

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient divided", numel, "fp32"),)

    node = tape.node("div", [x], backward, [(by, PRODUCT)])
    y = tape.new("losses by token", numel, "fp32")
    tape.attach(node, y)
    return y
