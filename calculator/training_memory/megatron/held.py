"""What a GPU of a Megatron run holds from one step to the next."""

from __future__ import annotations

from collections.abc import Iterator

from ..categories import Category
from ..held import Held
from ..implementations import Implementation
from ..layouts import rounded
from ..rank import Rank
from ..run import Run
from .buffers import buffer, of_products, part_weights
from .shape import values

FP32_BYTES = 4
BF16_BYTES = 2


def held_rows(run: Run, rank: Rank) -> tuple[Held, ...]:
    """Every row, as the allocator counts."""
    rows = _of_nanotron if run.implementation is Implementation.NANOTRON else _rows
    return tuple(Held(name=n, category=c, bytes=b, why=w) for n, c, b, w in rows(run, rank) if b)


_Row = tuple[str, Category, int, str]


def _rows(run: Run, rank: Rank) -> Iterator[_Row]:
    parts = [part_weights(run, rank, part) for part in range(rank.parts)]
    shared_out = run.layout.zero > 0
    made = [
        buffer(weights, replicas=run.layout.replicas, shared_out=shared_out) for weights in parts
    ]
    everything = [weight for weights in parts for weight in weights]
    if shared_out:
        size = sum(rounded(BF16_BYTES * one.numel) for one in made)
        yield "weights, in one buffer", Category.WEIGHTS, size, WEIGHTS
    else:
        size = sum(rounded(BF16_BYTES * weight.numel) for weight in everything)
        yield "weights", Category.WEIGHTS, size, WEIGHTS
    gradient_bytes = run.recipe.by_category[Category.GRADIENTS]
    main = sum(rounded(gradient_bytes * one.numel) for one in made)
    yield "main gradients, in one buffer", Category.GRADIENTS, main, GRADIENTS
    pieces = (piece for one in made for piece in one.pieces())
    own = sum(rounded(FP32_BYTES * piece) for piece in pieces)
    of_its_share = " of this GPU's share" if shared_out and run.layout.replicas > 1 else ""
    yield f"master copy{of_its_share}", Category.MASTER, own, MASTER
    yield f"first moment{of_its_share}", Category.OPTIMIZER, own, FIRST
    yield f"second moment{of_its_share}", Category.OPTIMIZER, own, SECOND
    shapes = {weight.shape for weight in of_products(everything, tied=run.model.tied)}
    empty = sum(rounded(BF16_BYTES * height * width) for height, width in shapes)
    yield "gradients that say nothing", Category.TEMPORARY, empty, EMPTY
    known = values(run)
    if rank.is_last and run.layout.sequence_parallel:
        gathered = rounded(BF16_BYTES * known["s"] * known["b"] * known["h"])
        yield "buffer for the head's gathered input", Category.TEMPORARY, gathered, GATHERED
    angles = rank.parts * rounded(FP32_BYTES * known["s"] * known["e"])
    yield "rotary angles", Category.ACTIVATIONS, angles, ANGLES
    yield "token counter", Category.ACTIVATIONS, rounded(FP32_BYTES), COUNTER


def _of_nanotron(run: Run, rank: Rank) -> Iterator[_Row]:
    """nanotron, src/nanotron/optim/gradient_accumulator.py and zero.py."""
    weights = part_weights(run, rank)
    yield "weights", Category.WEIGHTS, sum(rounded(BF16_BYTES * w.numel) for w in weights), WEIGHTS
    numel = sum(weight.numel for weight in weights)
    yield "gradients in fp32, in one buffer", Category.GRADIENTS, rounded(FP32_BYTES * numel), SUMS
    over = run.layout.data if run.layout.zero else 1
    pieces = [-(-weight.numel // over) for weight in weights]
    yield "master copy, in one buffer", Category.MASTER, rounded(FP32_BYTES * sum(pieces)), MASTER
    moments = sum(rounded(FP32_BYTES * piece) for piece in pieces)
    yield "first moment", Category.OPTIMIZER, moments, FIRST
    yield "second moment", Category.OPTIMIZER, moments, SECOND
    known = values(run)
    angles = rank.layers * 2 * rounded(known["s"] * known["e"] // 2 * BF16_BYTES)
    yield "rotary angles, of every layer", Category.ACTIVATIONS, angles, ANGLES


SUMS = "When a backward pass is done, its 16-bit gradients are added to the sum here."
WEIGHTS = "Every product with a weight reads it."
GRADIENTS = (
    "Each product adds its weight's gradient to the sum here, so that small ones of many "
    "micro-batches are not lost."
)
MASTER = "A small update to a 16-bit weight is rounded away; it is added here instead."
FIRST = "The running mean of the gradient, which the update follows."
SECOND = "The running mean of the squared gradient, which scales the update."
EMPTY = (
    "A weight's gradient is in its main gradient already, but Megatron's hooks wait for one to "
    "arrive: Transformer Engine sends one empty tensor for each shape and keeps it."
)
GATHERED = "The head's product reads all tokens; the buffer in which they meet is kept."
ANGLES = "All layers turn queries and keys by the same angles, which are worked out once."
COUNTER = "The step counts its tokens on the GPU."
