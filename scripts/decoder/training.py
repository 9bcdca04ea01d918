"""Training: draw passages, go forward and back, let Adam move the parameters, again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

from .adam import Adam
from .data import ALPHABET, TEXT, draw_batch, encode
from .model import DECODER, Decoder, Shape

SEQUENCES = 16
"""Sequences in one step's batch."""


def losses(
    *,
    shape: Shape = DECODER,
    sequences: int = SEQUENCES,
    seed: int = 0,
    rate: float = 1e-2,
) -> Iterator[float]:
    """Train one step for each loss that is asked for, and for ever.

    Each is the mean loss (nats a character) of a step's batch, measured before that step's update.
    Between two of them nothing runs, so that a page can draw, or stop. The same arguments give the
    same losses. Raises ValueError for a ``shape`` whose vocabulary is smaller than the text's.
    """
    if shape.vocabulary < len(ALPHABET):
        raise ValueError(
            f"vocabulary: {shape.vocabulary} cannot be used; the text needs {len(ALPHABET)} or more"
        )
    return _losses(shape, sequences, seed, rate)


def _losses(shape: Shape, sequences: int, seed: int, rate: float) -> Iterator[float]:
    source = random.Random(seed)
    tokens = encode(TEXT)
    model = Decoder(shape, seed=seed)
    adam = Adam(model.parameters.values(), rate=rate)
    while True:
        inputs, targets = draw_batch(tokens, source, sequences=sequences, sequence=shape.sequence)
        loss = model.gradients(inputs, targets)
        adam.step()
        yield loss


def train(
    steps: int,
    on_step: Callable[[int, float], None] | None = None,
    *,
    shape: Shape = DECODER,
    sequences: int = SEQUENCES,
    seed: int = 0,
    rate: float = 1e-2,
) -> list[float]:
    """The first ``steps`` of :func:`losses`.

    ``on_step(step, loss)`` is called after each step, the first being 1.
    """
    made: list[float] = []
    endless = losses(shape=shape, sequences=sequences, seed=seed, rate=rate)
    for loss in islice(endless, steps):
        made.append(loss)
        if on_step:
            on_step(len(made), loss)
    return made
