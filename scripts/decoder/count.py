"""What did the forward pass keep? Run it, look at the tape, run backward, and see what was read."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import groupby

from .adam import Adam
from .data import TEXT, draw_batch, encode
from .model import DECODER, Decoder, Shape, block_name
from .tape import Kept, Moment, Read, Tape

NOT_READ = {
    "input": "not read: the norm's gradient uses its normalised values instead",
    "scores": "not read: softmax's gradient uses its output, the weights, instead",
    "projection output": "not read: a sum's gradient needs neither of the things it adds",
    "residual sum": "not read: the norm's gradient uses its normalised values instead",
    "FFN output": "not read: a sum's gradient needs neither of the things it adds",
    "logits": "not read: the loss's gradient uses the probabilities instead",
}
"""Why backward does without a value that the tape keeps because an operation produced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """A kept value of one sequence: ``values`` numbers in ``shape``, and why backward needs it.

    ``read`` says whether the backward pass did read it when it ran.
    """

    name: str
    shape: tuple[int, ...]
    values: int
    read: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """One training step, counted.

    ``block`` holds what one block keeps for one sequence (all blocks agreed), ``head`` what stays
    after the last block, ``states`` the numbers that outlive a step: weights, gradients and Adam's
    two moments. ``timeline`` is what the tape held after each event, for all ``sequences``.
    """

    block: tuple[CountRow, ...]
    head: tuple[CountRow, ...]
    states: dict[str, int]
    timeline: tuple[Moment, ...]
    sequences: int

    @property
    def block_values(self) -> int:
        """Values that one block keeps for one sequence."""
        return sum(row.values for row in self.block)

    @property
    def block_values_read(self) -> int:
        """Those of them that the backward pass read."""
        return sum(row.values for row in self.block if row.read)

    @property
    def peak(self) -> Moment:
        """The moment at which the tape held most."""
        return max(self.timeline, key=lambda moment: moment.values)


def count_kept(*, shape: Shape = DECODER, sequences: int = 1, seed: int = 0) -> list[CountRow]:
    """The values that one block keeps for one sequence: a row each, in the order they are made."""
    return list(count_step(shape=shape, sequences=sequences, seed=seed).block)


def count_step(*, shape: Shape = DECODER, sequences: int = 1, seed: int = 0) -> Count:
    """Run one step on ``sequences`` sequences and count everything that it held.

    Raises RuntimeError if two blocks, or two sequences, turn out to keep different amounts.
    """
    model = Decoder(shape, seed=seed)
    adam = Adam(model.parameters.values())
    inputs, targets = draw_batch(
        encode(TEXT), random.Random(seed), sequences=sequences, sequence=shape.sequence
    )
    tape = Tape()
    model.forward(tape, inputs, targets)
    kept = dict(tape.kept)
    tape.backward()
    adam.step()

    blocks = [
        _rows(kept, tape.reads, block_name(layer), sequences) for layer in range(shape.layers)
    ]
    if any(rows != blocks[0] for rows in blocks):
        raise RuntimeError("two blocks of the same shape keep different values")
    return Count(
        block=blocks[0],
        head=_rows(kept, tape.reads, "head/", sequences),
        states={
            "weights": model.parameter_count,
            "gradients": model.gradient_count,
            "first moments": adam.first_values,
            "second moments": adam.second_values,
        },
        timeline=tuple(tape.timeline),
        sequences=sequences,
    )


def _rows(
    kept: dict[str, Kept], reads: dict[str, list[Read]], prefix: str, sequences: int
) -> tuple[CountRow, ...]:
    """The kept values whose name begins with ``prefix``, for one sequence."""
    rows = []
    for name, value in kept.items():
        if not name.startswith(prefix):
            continue
        short_name = name.removeprefix(prefix)
        values, rest = divmod(value.values, sequences)
        if rest:
            raise RuntimeError(f"{name}: {value.values} values for {sequences} sequences")
        uses = reads.get(name)
        rows.append(
            CountRow(
                name=short_name,
                shape=value.shape[1:],
                values=values,
                read=uses is not None,
                why=_why(uses) if uses else NOT_READ[short_name],
            )
        )
    return tuple(rows)


def _why(uses: list[Read]) -> str:
    """The uses in the forward pass's order, those that share a formula together."""
    parts = []
    for formula, group in groupby(reversed(uses), key=lambda read: read.formula):
        parts.append(f"{_listed([read.use for read in group])}: {formula}")
    return "; ".join(parts)


def _listed(words: list[str]) -> str:
    """``"a"``, ``"a and b"``, ``"a, b and c"``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
