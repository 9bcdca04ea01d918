"""The Decoder: a GPT with everything small, put together from the operations."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .matrix import count
from .operations import (
    add,
    attend,
    attention_scores,
    causal_softmax,
    cross_entropy,
    embed,
    gelu,
    linear,
    normalise,
    scale_and_shift,
)
from .parameter import Parameter
from .tape import Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a decoder; the defaults are the Decoder's."""

    layers: int = 2
    hidden: int = 16
    heads: int = 2
    ffn: int = 32
    vocabulary: int = 64
    sequence: int = 8

    def __post_init__(self) -> None:
        """Refuse what cannot be built, with the field and the remedy."""
        for field in ("layers", "hidden", "heads", "ffn", "vocabulary", "sequence"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: {getattr(self, field)} cannot be used; give 1 or more")
        if self.hidden % self.heads:
            raise ValueError(
                f"heads: {self.heads} cannot be used; it must divide hidden, {self.hidden}"
            )


DECODER = Shape()


class Decoder:
    """Pre-norm, learned positions, exact GELU, tied head; no linear biases, dropout or final norm.

    ``parameters`` holds every trained tensor by name, the embedding once though it is used twice.
    With ``settled=False`` it starts at a point for checking gradients and not for training: the
    norms' scales and shifts are random too, so that no gradient is simple by accident, and the
    embedding is larger, so that the norms, which divide by their input's size, bend gently enough
    for a numerical derivative.
    """

    def __init__(self, shape: Shape = DECODER, *, seed: int = 0, settled: bool = True) -> None:
        self.shape = shape
        self.parameters: dict[str, Parameter] = {}
        source = random.Random(seed)

        def matrix(name: str, height: int, width: int, spread: float) -> None:
            rows = [[source.gauss(0.0, spread) for _ in range(width)] for _ in range(height)]
            self.parameters[name] = Parameter(name, rows)

        def vector(name: str, start: float) -> None:
            spread = 0.0 if settled else 0.3
            rows = [[start + spread * source.gauss(0.0, 1.0) for _ in range(shape.hidden)]]
            self.parameters[name] = Parameter(name, rows)

        h, f = shape.hidden, shape.ffn
        # Small, so that the first logits are too and the first loss is near log(vocabulary).
        start = 0.1 if settled else h**-0.5
        matrix("embedding", shape.vocabulary, h, start)
        matrix("positions", shape.sequence, h, start)
        for layer in range(shape.layers):
            block = block_name(layer)
            vector(f"{block}norm 1 scale", 1.0)
            vector(f"{block}norm 1 shift", 0.0)
            for name in ("query", "key", "value", "projection"):
                matrix(f"{block}{name} weight", h, h, h**-0.5)
            vector(f"{block}norm 2 scale", 1.0)
            vector(f"{block}norm 2 shift", 0.0)
            matrix(f"{block}FFN in weight", f, h, h**-0.5)
            matrix(f"{block}FFN out weight", h, f, f**-0.5)

    @property
    def parameter_count(self) -> int:
        """Every number that is trained, counted tensor by tensor."""
        return sum(parameter.values for parameter in self.parameters.values())

    @property
    def gradient_count(self) -> int:
        """Every number that a gradient is kept in, counted tensor by tensor."""
        return sum(count(parameter.gradient) for parameter in self.parameters.values())

    def forward(self, tape: Tape, inputs: list[list[int]], targets: list[list[int]]) -> float:
        """The loss in nats for b sequences of s tokens and their next tokens.

        Everything that was produced on the way stays on the tape.
        """
        table = self.parameters["embedding"]
        x = embed(tape, inputs, table, self.parameters["positions"], name=f"{block_name(0)}input")
        for layer in range(self.shape.layers):
            last = layer + 1 == self.shape.layers
            # What leaves a block is the next one's input: one value, with one name.
            output = "head/input" if last else f"{block_name(layer + 1)}input"
            x = self._block(tape, x, block_name(layer), output)
        logits = linear(tape, x, table, name="head/logits")
        return cross_entropy(tape, logits, targets, name="head/probabilities")

    def gradients(self, inputs: list[list[int]], targets: list[list[int]]) -> float:
        """Go forward and back; every parameter's gradient is then that of the returned loss."""
        for parameter in self.parameters.values():
            parameter.clear_gradient()
        tape = Tape()
        loss = self.forward(tape, inputs, targets)
        tape.backward()
        return loss

    def _block(self, tape: Tape, x: str, block: str, output: str) -> str:
        """Add attention(norm(x)) to x, and then FFN(norm(x)) to that."""
        n = self._norm(tape, x, block, "norm 1")
        q = linear(tape, n, self.parameters[f"{block}query weight"], name=f"{block}queries")
        k = linear(tape, n, self.parameters[f"{block}key weight"], name=f"{block}keys")
        v = linear(tape, n, self.parameters[f"{block}value weight"], name=f"{block}values")
        scores = attention_scores(tape, q, k, self.shape.heads, name=f"{block}scores")
        weights = causal_softmax(tape, scores, name=f"{block}weights")
        context = attend(tape, weights, v, name=f"{block}context")
        projected = linear(
            tape,
            context,
            self.parameters[f"{block}projection weight"],
            name=f"{block}projection output",
        )
        x = add(tape, x, projected, name=f"{block}residual sum")

        n = self._norm(tape, x, block, "norm 2")
        wide = linear(
            tape, n, self.parameters[f"{block}FFN in weight"], name=f"{block}FFN pre-activation"
        )
        active = gelu(tape, wide, name=f"{block}FFN activation")
        narrow = linear(
            tape, active, self.parameters[f"{block}FFN out weight"], name=f"{block}FFN output"
        )
        return add(tape, x, narrow, name=output)

    def _norm(self, tape: Tape, x: str, block: str, norm: str) -> str:
        """LayerNorm in two operations, since going back each needs something of its own."""
        normalised = normalise(
            tape,
            x,
            name=f"{block}{norm} normalised",
            deviation_name=f"{block}{norm} inverse deviation",
        )
        return scale_and_shift(
            tape,
            normalised,
            self.parameters[f"{block}{norm} scale"],
            self.parameters[f"{block}{norm} shift"],
            name=f"{block}{norm} output",
        )


def block_name(layer: int) -> str:
    """The prefix of everything that belongs to one block, counted from 1: ``"block 1/"``."""
    return f"block {layer + 1}/"
