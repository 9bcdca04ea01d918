"""A micro-batch, and what GPUs that share its sequences hold of it beside their own parts.

PyTorch 2.13, ``context_parallel``: the batch comes whole to each of them, and keeps its memory when
it is cut to the GPU's part in place. The context manager holds the parts that it copied there, and
of a table that it brings back afterwards a copy.
"""

from __future__ import annotations

from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..formula import Formula, product, symbol
from ..structure import Structure
from .sizes import ROTARY, ROWS

GPUS = symbol("C")


def batch(tape: Tape, structure: Structure) -> tuple[Tensor, Tensor]:
    """Token ids and labels, as the model sees them."""
    whole = ROWS * GPUS if structure.split.context > 1 else ROWS
    ids, labels = (tape.new(name, whole, "int64") for name in ("token ids", "labels"))
    return ids.part(ROWS), labels.part(ROWS)


def shared(tape: Tape, structure: Structure) -> list[Tensor]:
    """What is held until a micro-batch's backward pass ends, where GPUs share its sequences."""
    if structure.split.context == 1:
        return []
    # A complex number for each position of the longest sequence and pair of features. Divided here,
    # since whoever asks for nothing of this need not wait for fractions.
    table = product(("T", "e")) / 2
    parts: list[tuple[str, Formula, str]] = [
        ("rotary table, to be brought back", table, "complex64"),
        ("this GPU's token ids", ROWS, "int64"),
        ("this GPU's labels", ROWS, "int64"),
        ("this GPU's rotary table", ROTARY / 2, "complex64"),
        ("this GPU's rotary table, copied", ROTARY / 2, "complex64"),
    ]
    return [tape.new(*one) for one in parts]
