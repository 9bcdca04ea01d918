"""Training: draw passages, go forward and back, let Adam move the parameters, again."""

from __future__ import annotations

import random
from collections.abc import Callable

from .adam import Adam
from .data import ALPHABET, TEXT, draw_batch, encode
from .model import DECODER, Decoder, Shape

SEQUENCES = 16
"""Sequences in one step's batch."""


def train(
    steps: int,
    on_step: Callable[[int, float], None] | None = None,
    *,
    shape: Shape = DECODER,
    sequences: int = SEQUENCES,
    seed: int = 0,
    rate: float = 1e-2,
) -> list[float]:
    """The loss (nats a character) of each of ``steps`` steps, measured before that step's update.

    ``on_step(step, loss)`` is called after each step, the first being 1, so that a caller can draw
    the curve while it grows. The same arguments give the same losses. Raises ValueError for a
    ``shape`` whose vocabulary is smaller than the text's.
    """
    if shape.vocabulary < len(ALPHABET):
        raise ValueError(
            f"vocabulary: {shape.vocabulary} cannot be used; the text needs {len(ALPHABET)} or more"
        )
    source = random.Random(seed)
    tokens = encode(TEXT)
    model = Decoder(shape, seed=seed)
    adam = Adam(model.parameters.values(), rate=rate)
    losses: list[float] = []
    for step in range(1, steps + 1):
        inputs, targets = draw_batch(tokens, source, sequences=sequences, sequence=shape.sequence)
        losses.append(model.gradients(inputs, targets))
        adam.step()
        if on_step:
            on_step(step, losses[-1])
    return losses
